"""`headstart evaluate`: the scores of a run on other data; and the flags of all verbs that read data for a run."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from rich.console import Console
from rich.table import Table

from headstart.cli.options import Common, CommonFlags, Switch
from headstart.cli.running import machine_of
from headstart.errors import visible

if TYPE_CHECKING:
    from headstart.training.run_directory import DataConfig


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """How a file is read; columns and documents that are not given are those of the run's own data."""

    text_column: str | None = None
    """The column of the text: a name, or a number from 1 in a table without header."""

    label_column: str | None = None
    """The column of the label."""

    documents: Literal["auto", "line", "blank", "file"] | None = None
    """What a document of a .txt corpus is."""

    encoding: str = "utf-8"
    """How the file is encoded."""

    errors: Literal["strict", "replace", "ignore"] = "strict"
    """What to do with bytes that are not text."""

    skip_bad_rows: Switch = False
    """Count rows that cannot be used instead of stopping at the first."""

    def over(self, data: "DataConfig") -> "DataConfig":
        """The run's own way of reading, with what was given in its place."""
        given = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        return dataclasses.replace(data, **given)


ReadingFlags = Annotated[ReadingOptions, Parameter(name="*", group=Group("Reading", sort_key=60))]
AS_THE_RUN = ReadingOptions()


def note(line: str) -> None:
    """A line for a person, on standard error."""
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(visible(line))


@contextmanager
def working(on_what: str, *, is_printing: bool = False) -> Iterator[None]:
    """A sign of life on standard error, where that is a terminal, and not the one that is being printed to."""
    console = Console(stderr=True)
    if not console.is_terminal or (is_printing and sys.stdout.isatty()):
        yield
        return
    with console.status(visible(on_what)):
        yield


def evaluate(
    run: Path,
    *,
    data: str,
    length: int | None = None,
    reading: ReadingFlags = AS_THE_RUN,
    common: CommonFlags = Common(),
) -> None:
    """The scores of a run on data that it has not seen.

    A causal run gives loss, perplexity and bits per byte; a masked one the loss and accuracy at hidden tokens, and
    of pairs where it has learned them; a fine-tuned one the measures of its task. Shares are fractions.

    For example:

        headstart evaluate runs/base --data other.txt

        headstart evaluate runs/tuned --data test.jsonl --json

        headstart evaluate runs/base --data novel.txt --documents file --length 1024

    Parameters
    ----------
    run
        A run's directory.
    data
        A corpus for a language model, labelled rows for a fine-tuned run; - for standard input.
    length
        Tokens to read at once (default: as trained). A causal run then gives the loss by position too; beyond the
        trained length that shows how far its positions carry.
    """
    from headstart.training.using import evaluate_run, open_run

    machine = machine_of(common)
    machine.prepare()
    loaded = open_run(run, "evaluate", machine)
    with working(f"evaluating {run} on {data}"):
        found = evaluate_run(
            loaded, data, machine, length=length, reading=reading.over(loaded.config.data), tell=note
        )
    if common.json:
        print(json.dumps({"run": str(run), "objective": loaded.config.objective, **found.as_json()}))
        return
    is_text = loaded.config.objective in ("causal", "masked", "masked-nsp")
    print_metrics({**found.metrics, "predicted tokens" if is_text else "rows": found.count})
    if "buckets" in found.details:
        _print_positions(found.details)


def print_metrics(metrics: dict[str, float]) -> None:
    """A measure a line."""
    for key, value in metrics.items():
        print(f"{key:<20}{value:,}" if isinstance(value, int) else f"{key:<20}{value:.4f}")


def _print_positions(details: dict[str, Any]) -> None:
    table = Table("tokens read", box=None, pad_edge=False, header_style="bold")
    for title in ("loss", "tokens", ""):
        table.add_column(title, justify="right" if title else "left")
    for bucket in details["buckets"]:
        loss, is_beyond = bucket["loss"], bucket["first"] > details["trained_length"]
        table.add_row(
            f"{bucket['first']:,}–{bucket['last']:,}",
            "–" if loss is None else f"{loss:.4f}",
            f"{bucket['count']:,}",
            "beyond the trained length" if is_beyond else "",
        )
    print()
    Console(highlight=False, soft_wrap=True).print(table)
