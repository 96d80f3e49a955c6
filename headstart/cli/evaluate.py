"""`headstart evaluate`: the scores of a run on other data."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from headstart.cli.options import Common, CommonFlags, ReadingFlags, ReadingOptions
from headstart.cli.running import machine_of
from headstart.errors import visible


def note(line: str) -> None:
    """A line for a person, on standard error."""
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(visible(line))


def printed(text: str) -> str:
    """Text for standard output: as it is for a file or a pipe, escaped where it could drive a terminal."""
    return visible(text) if sys.stdout.isatty() else text


@contextmanager
def working(on_what: str, *, is_printing: bool = False) -> Iterator[None]:
    """A sign of life on standard error, where that is a terminal, and not the one that is being printed to."""
    console = Console(stderr=True)
    if not console.is_terminal or (is_printing and sys.stdout.isatty()):
        yield
        return
    with console.status(visible(on_what)):
        yield


@contextmanager
def advancing(on_what: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error that a share of the work is told to; silent where that is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(visible(on_what), total=None)
        yield lambda share: bar.update(task, total=1.0, completed=share)


def evaluate(
    run: Path,
    *,
    data: str,
    length: int | None = None,
    beam: int = 5,
    length_penalty: float = 1.0,
    reading: ReadingFlags = ReadingOptions(),
    common: CommonFlags = Common(),
) -> None:
    """The scores of a run on data that it has not seen.

    A causal run gives loss, perplexity and bits per byte; a masked one the loss and accuracy at hidden tokens, and
    of pairs where it has learned them; a fine-tuned one the measures of its task; a translation run the loss, and
    BLEU and chrF by sacreBLEU, from 0 to 100, with their signatures. Shares are fractions.

    For example:

        headstart evaluate runs/base --data other.txt

        headstart evaluate runs/tuned --data test.jsonl --json

        headstart evaluate runs/base --data novel.txt --documents file --length 1024

        headstart evaluate runs/english-french --data test.tsv --beam 5

    Parameters
    ----------
    run
        A run's directory.
    data
        A corpus for a language model, labelled rows for a fine-tuned run, pairs for a translation run; - for standard
        input.
    length
        Tokens to read at once (default: as trained). A causal run then gives the loss by position too; beyond the
        trained length that shows how far its positions carry.
    beam
        Ways that the search for a translation keeps open; 1 is greedy.
    length_penalty
        How a translation's length counts: 0 favours short ones, 1 ranks by the mean over the tokens.
    """
    from headstart.training.using import evaluate_run, open_run

    machine = machine_of(common)
    machine.prepare()
    loaded = open_run(run, "evaluate", machine)
    with advancing(f"evaluating {run} on {data}") as on_share:
        how = dataclasses.replace(loaded.config.data, **reading.given())
        found = evaluate_run(
            loaded,
            data,
            machine,
            length=length,
            beams=beam,
            length_penalty=length_penalty,
            reading=how,
            tell=note,
            on_share=on_share,
        )
    if common.json:
        print(json.dumps({"run": str(run), "objective": loaded.config.objective, **found.as_json()}))
        return
    is_text = loaded.config.objective in ("causal", "masked", "masked-nsp")
    print_metrics({**found.metrics, "predicted tokens" if is_text else "rows": found.count})
    for name, signature in found.details.get("signatures", {}).items():
        print(f"{name:<20}{signature}")
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
