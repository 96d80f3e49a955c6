"""`headstart data`: check data before anything is trained, or write the embedded corpus as files."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from headstart.cli.consoles import byte_progress
from headstart.cli.options import READING, Common, CommonFlags, Files, OutPath, ReadingFlags, Switch
from headstart.config.training import Task
from headstart.errors import UserError, visible, visible_spaces

if TYPE_CHECKING:
    from headstart.data.check import DataReport


def data_check(
    *,
    corpus: Files = (),
    train: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    task: Task = "classification",
    tokenizer: str | None = None,
    length: int | None = None,
    reading: ReadingFlags = READING,
    common: CommonFlags = Common(),
) -> None:
    """Look for bad rows, label trouble, long texts and leaks, before anything is trained.

    A leak is a text that occurs twice: in test and in train, in test and in the corpus, or twice in one set.
    Equal means equal after folding case, accents, punctuation and white space; near means that the longer text
    has at least 60 % of the three-word sequences of the shorter one. Every bad row is listed. Findings do not fail
    the command: it exits with 0 if the data can be used, and with 2 if not, as with bad rows and without
    --skip-bad-rows.

    For example:

        headstart data check --train train.jsonl --valid valid.jsonl --test test.jsonl
        headstart data check --corpus reviews.txt.gz --train train.csv --text-column review --label-column stars
        headstart data check --task translation --train pairs.tsv --test more-pairs.tsv --json

    Args:
        corpus: Unlabelled text: .txt, .jsonl, .csv, .tsv or .parquet, also .gz; - for standard input.
        train: Labelled rows to learn from: .jsonl, .csv, .tsv, .parquet, or lines beside a .label file.
        valid: Labelled rows to choose by.
        test: Labelled rows to measure on.
        task: What the labels are; translation reads pairs.
        tokenizer: The directory of the tokenizer, or of a run that has it, to count tokens by (default: one that is
            trained on these rows).
        length: Tokens that are read of a text: says how many are cut.
    """
    from headstart.config.reading import Reading
    from headstart.data.check import check_data

    if length is not None and length < 1:
        raise UserError(f"--length {length}", fix="give 1 or more")
    given = {"train": train, "valid": valid, "test": test}
    paths = {name: path for name, path in given.items() if path is not None}
    with byte_progress(corpus) as bar:
        if corpus:
            bar.stage("reading the corpus")
        how = Reading(**reading.given())
        report = check_data(
            paths, corpus, task=task, reading=how, tokenizer=tokenizer, length=length or 0, on_bytes=bar.advance
        )
    if common.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _print_page(report)
    if report.bad_rows and not how.skip_bad_rows:
        first = report.bad_rows[0][1]
        more = f"; {len(report.bad_rows):,} bad rows in all, listed above" if len(report.bad_rows) > 1 else ""
        raise UserError(first.what + more, where=first.where, fix=f"{first.fix}; or --skip-bad-rows", code="bad-row")


def _print_page(report: "DataReport") -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
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

    if report.bad_rows:
        console.print("\nBad rows", style="bold")
    for name, row in report.bad_rows:
        console.print(visible(f"  {name}: {row.where}: {row.what}"))

    if report.sets:
        console.print("\nLengths", style="bold")
        console.print(visible(f"  in tokens, counted by {report.tokenizer}"))
    for name, facts in report.sets.items():
        tokens, cut = facts.lengths.tokens, facts.lengths.cut
        longer = ", ".join(f"{share:.1%} are longer than {length:,}" for length, share in cut.items())
        spread = f"median {tokens['median']:,}, 95 % up to {tokens['p95']:,}, the longest {tokens['longest']:,}"
        console.print(f"  {name}: {spread}; {longer}")

    console.print("\nWarnings", style="bold")
    for name, warning in report.warnings:
        console.print(visible(f"  {name}: {warning.message}"))
    if not report.warnings:
        console.print("  no warnings")

    console.print("\nLeaks", style="bold")
    for name in report.leaks.counts:
        if not name.startswith("near_"):
            _print_leak(report, name, console)
    for line in _advice(report):
        console.print(f"→ {line}")


def _classes(counts: dict[str, int]) -> str:
    listed = [f"{_short(visible_spaces(label), 20)}: {count:,}" for label, count in counts.items()]
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
            names = [Path(path).name for path in (example.location, example.other_location)]
            console.print(visible(f"      {names[0]} {sign} {names[1]}"))
            if example.text:
                console.print(visible(f"        “{_short(example.text, 90)}”"))


def _short(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"


# What to do about each kind of warning.
_FIXES = {
    "conflicting_labels": "Decide on one label for each text that has several.",
    "similar_labels": "Write the labels that are the same class in one way: they count as different classes.",
    "likely_typo": "Correct the labels that are typos: each is a class of its own.",
    "single_row_class": "Give classes of one row more rows, or merge them with others.",
    "imbalance": "Compare by macro-F1; a study of classes does so by itself.",
    "cut_texts": "Give a larger --length, where the model reads as much, or split long texts.",
    "repeated_label": "Name each label of a row once.",
}


def _advice(report: "DataReport") -> Iterator[str]:
    """What fits these findings, each once."""
    if report.bad_rows:
        yield "Correct the bad rows, or give --skip-bad-rows, which leaves them out."
    kinds = {warning.kind for _, warning in report.warnings}
    yield from (fix for kind, fix in _FIXES.items() if kind in kinds)
    counts = report.leaks.counts
    for name in (name for name in counts if not name.startswith("near_")):
        equal, near, (of, _, other) = counts[name], counts.get(f"near_{name}", 0), name.partition("_in_")
        if other == "corpus" and (equal or near):
            why = f"what is pretrained on texts of {of} is not measured fairly by them"
            yield f"Drop the texts of {of} from the corpus: {why}."
        elif other and equal:
            yield f"Drop these rows from {other}, or give each score on {of} with and without them."
        elif other and near:
            yield f"Look at the near-duplicates of {of} in {other}: keep those in {of} alone that say the same."
    repeated = [name.removesuffix("_repeats") for name in counts if name.endswith("_repeats") and counts[name]]
    repeated = [name for name in repeated if not name.startswith("near_")]
    if {"train", "corpus"} & set(repeated):
        yield "Drop the repeats: they weigh double in training."
    if {"valid", "test"} & set(repeated):
        yield (
            f"Drop the repeats of {' and '.join(n for n in repeated if n in ('valid', 'test'))}: an interval over "
            + ("them looks narrower than it is.")
        )
    if any(counts.values()):
        yield "--json lists the row numbers, from 0."


def demo(*, out: OutPath, null: Switch = False, common: CommonFlags = Common()) -> None:
    """Write the embedded corpus as files: French book reviews, with and without labels, and their English.

    A grammar makes it, so the answer is known: the unlabelled reviews can teach what a few labels cannot. With
    --null they cannot: the same words as often, but good and bad by chance; the labelled files stay the same.
    The same seed gives the same bytes. Files of these names that are there already are left alone if they are
    equal, and are an error if they are not.

    For example:

        headstart data demo --out demo
        headstart data demo --out demo-null --null
        headstart data demo --out demo-7 --seed 7 --json

    Args:
        out: The directory to write to; it is made if it is not there.
        null: Write the variant whose unlabelled text holds nothing about sentiment.
    """
    from headstart.demo.corpus import write_demo

    files = write_demo(out, common.seed, null)
    if common.json:
        listed = {f.name: {"rows": f.rows, "bytes": f.size_bytes, "sha256": f.sha256} for f in files}
        answer = {"directory": str(out), "seed": common.seed, "null": null}
        answer |= {"written": any(f.fresh for f in files), "files": listed}
        print(json.dumps(answer, indent=2))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    table = Table("file", "rows", "kB", "")
    for file in files:
        note = "" if file.fresh else "was there"
        table.add_row(file.name, f"{file.rows:,}", f"{file.size_bytes / 1000:,.0f}", note)
    console.print(table)
    console.print(f"In {visible(str(out))}; README.md there says what each is for. Next:")
    corpus, kept = (shlex.quote(str(out / name)) for name in ("unlabelled.txt", "tokenizer"))
    sets = (f"--{split} {shlex.quote(str(out / f'{split}.jsonl'))}" for split in ("train", "valid", "test"))
    console.print(visible(f"  headstart data check --corpus {corpus} {' '.join(sets)}"))
    console.print(visible(f"  headstart tokenizer {corpus} --vocab 2000 --out {kept}"))
