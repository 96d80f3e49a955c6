"""`headstart data check`: bad rows, label trouble and leaks, before anything is trained."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from headstart.cli.options import Common, CommonFlags, ReadingFlags, ReadingOptions
from headstart.errors import visible

Files = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)]

if TYPE_CHECKING:
    from headstart.text.check import DataReport


def data_check(
    *,
    corpus: Files = (),
    train: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    task: Literal["classification", "multilabel", "regression", "translation"] = "classification",
    reading: ReadingFlags = ReadingOptions(),
    common: CommonFlags = Common(),
) -> None:
    """Look for bad rows, label trouble and leaks, before anything is trained.

    A leak is a text that stands twice: in test and in train, in test and in the corpus, or twice in one set.
    Equal means equal after folding case, accents, punctuation and white space; near means that the longer text
    has at least 60 % of the runs of three words of the shorter one. Findings are no failure: the exit code is 0
    when the data could be read, and 2 when it cannot be used.

    For example:

        headstart data check --train train.jsonl --valid valid.jsonl --test test.jsonl

        headstart data check --corpus reviews.txt.gz --train train.csv --text-column review --label-column stars

        headstart data check --task translation --train pairs.tsv --test more-pairs.tsv --json

    Parameters
    ----------
    corpus
        Unlabelled text: .txt, .jsonl, .csv, .tsv or .parquet, also .gz; - for standard input.
    train
        Labelled rows to learn from: .jsonl, .csv, .tsv, .parquet, or lines with a .label file beside them.
    valid
        Labelled rows to choose by.
    test
        Labelled rows to measure on.
    task
        What the labels are; translation reads pairs.
    """
    from headstart.text.check import check_data

    given = {"train": train, "valid": valid, "test": test}
    with _progress(corpus) as on_bytes:
        report = check_data(
            {name: path for name, path in given.items() if path is not None},
            corpus,
            task=task,
            on_bytes=on_bytes,
            **reading.given(),
        )
    if common.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _print_page(report, Console(highlight=False, markup=False, soft_wrap=True))


@contextmanager
def _progress(paths: tuple[str, ...]) -> Iterator[Callable[[int], None] | None]:
    """A bar with the time left on standard error, where that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal or not paths:
        yield None
        return
    sizes = [os.path.getsize(path) for path in paths if Path(path).is_file()]
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("reading the corpus", total=sum(sizes) if len(sizes) == len(paths) else None)
        yield lambda byte_count: bar.advance(task, byte_count)


# ---- the page -------------------------------------------------------------------------------------------


def _print_page(report: "DataReport", console: Console) -> None:
    table = Table("set", Column("file", overflow="fold"), "rows", "classes", "largest class", "bad rows")
    for name, facts in report.sets.items():
        cells = [name, Path(facts.path).name, f"{facts.rows:,}", _classes(facts.class_counts)]
        share = facts.majority_share
        cells += ["" if share is None else f"{share:.1%}", _reasons(facts.bad_rows)]
        table.add_row(*(Text(visible(cell)) for cell in cells))
    if report.corpus:
        names = "\n".join(Path(path).name for path in report.corpus.paths)
        cells = ["corpus", names, f"{report.corpus.documents:,}", "", "", _reasons(report.corpus.bad_rows)]
        table.add_row(*(Text(visible(cell)) for cell in cells))
    console.print(table)

    console.print("\nLabels", style="bold")
    for name, warning in report.warnings:
        console.print(visible(f"  {name}: {warning.message}"))
    if not report.warnings:
        console.print("  nothing to warn of")

    console.print("\nLeaks", style="bold")
    for name in report.leaks.counts:
        if not name.startswith("near_"):
            _print_leak(report, name, console)
    for line in _advice(report):
        console.print(f"→ {line}")


def _classes(counts: dict[str, int]) -> str:
    listed = [f"{_short(label, 20)}: {count:,}" for label, count in counts.items()]
    more = f" … {len(listed)} in all" if len(listed) > 8 else ""
    return ", ".join(listed[:8]) + more


def _reasons(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items()) or "0"


def _print_leak(report: "DataReport", name: str, console: Console) -> None:
    equal, near = (len(report.leaks.findings[n]) for n in (name, f"near_{name}"))
    estimated = " (by estimate)" if name == "corpus_repeats" and near else ""
    console.print(f"  {name.replace('_', ' ')}: {equal:,} equal, {near:,} near{estimated}")
    for kind in (name, f"near_{name}"):
        for example in report.examples.get(kind, []):
            sign = "=" if kind == name else f"≈ {example.share:.0%}"
            places = [Path(place).name for place in (example.place, example.other_place)]
            console.print(visible(f"      {places[0]} {sign} {places[1]}"))
            if example.text:
                console.print(visible(f"        “{_short(example.text, 90)}”"))


def _short(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def _advice(report: "DataReport") -> Iterator[str]:
    counts = report.leaks.counts
    found = {name.removeprefix("near_") for name, count in counts.items() if count}
    if any("_in_train" in name or "_in_valid" in name for name in found):
        yield "Drop these rows from the earlier set, or give each score with and without them."
    if any(name.endswith("_in_corpus") for name in found):
        yield "Drop these texts from the corpus: what is pretrained on its test texts is not measured fairly."
    if any(name.endswith("_repeats") for name in found):
        yield "Repeats weigh double in training, and in test they make an interval look narrower than it is."
    if any(counts.values()):
        yield "--json lists the row numbers, from 0."
