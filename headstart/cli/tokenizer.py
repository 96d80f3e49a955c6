"""`headstart tokenizer`: train a tokenizer, or look at one, and print its doctor's page."""

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from headstart.cli.options import Common, CommonFlags, CorpusReading, CorpusReadingFlags, Words
from headstart.errors import UserError, visible
from headstart.text.files import is_stdin

if TYPE_CHECKING:
    from headstart.text.doctor import Diagnosis


def tokenizer(
    *files: Annotated[str, Parameter(allow_leading_hyphen=True)],
    vocab: int = 8_000,
    kind: Literal["bpe", "unigram", "wordpiece", "char"] = "bpe",
    normalise: Words | None = None,
    out: Path | None = None,
    existing: Annotated[Path | None, Parameter(name="--tokenizer")] = None,
    reading: CorpusReadingFlags = CorpusReading(),
    common: CommonFlags = Common(),
) -> None:
    """Train a tokenizer on your text, or look at one that you have, and print its doctor's page.

    Without --out nothing is written: try sizes and kinds until the page looks right, then keep one. The same
    text gives the same tokenizer.json, to the byte. Special tokens of every objective are in it from the start.

    For example:

        headstart tokenizer reviews.txt.gz

        headstart tokenizer reviews.txt.gz novels.txt --vocab 16000 --out tokenizers/fr-16k

        headstart tokenizer train.csv --text-column review --kind unigram --json

        headstart tokenizer reviews.txt.gz --normalise lower-case,apostrophes --out tokenizers/fr-lower

        headstart tokenizer reviews.txt.gz --tokenizer tokenizers/fr-16k

    Parameters
    ----------
    files
        Text to learn from and to examine on: .txt, .jsonl, .csv, .tsv or .parquet, also .gz; - for standard input.
    vocab
        How many tokens, special ones included; fewer where the text does not give so many.
    kind
        bpe and unigram work on bytes and lose nothing; wordpiece is BERT's; char has a token for each character.
    normalise
        What to make alike before all else, here and wherever the tokenizer is used: lower-case, apostrophes (all made
        straight), or both with a comma. Decoding then gives the text so made.
    out
        The directory to write tokenizer.json into.
    existing
        Do not train: examine this tokenizer.json, or SentencePiece .model with its dict.txt.
    """
    if common.threads:  # before the library starts its threads
        os.environ["RAYON_NUM_THREADS"] = str(common.threads)
    from headstart.text.doctor import diagnose
    from headstart.text.documents import pieces
    from headstart.text.normalising import in_order
    from headstart.text.rows import BadRows
    from headstart.text.tokenizer import Tokenizer
    from headstart.text.tokenizer_training import train

    _refuse_odd(files)
    if existing is not None and out is not None:
        raise UserError("--tokenizer examines, --out keeps what was trained", fix="give one of the two")
    if existing is not None and normalise:
        raise UserError("--normalise with --tokenizer", fix="leave it out: a tokenizer has its own way")
    ways = in_order(normalise or ())
    bad_rows = BadRows(reading.skip_bad_rows)
    with _progress(files) as bar:

        def texts() -> Iterator[str]:
            bad_rows.counts.clear()  # the files are read several times
            source = pieces(files, bad_rows=bad_rows, on_bytes=bar.advance, **reading.given())
            return (piece.text for piece in source)

        facts: dict[str, Any] = {"files": list(files)}
        if existing is not None:
            chosen, text_bytes = Tokenizer.load(existing), None
            facts |= {"tokenizer": str(existing), "notes": []}
        else:
            training = train(texts, vocab=vocab, kind=kind, normalise=ways, on_stage=bar.stage)
            chosen, text_bytes = training.tokenizer, training.matter.text_bytes
            facts |= {"kind": kind, "corpus_bytes": text_bytes, "notes": training.notes}
        bar.stage("examining")
        diagnosis = diagnose(chosen, texts(), text_bytes=text_bytes)
    if bad_rows.counts:
        facts["notes"].append(bad_rows.summary())
    facts |= {
        "out": str(chosen.save(out)) if out is not None else None,
        "fingerprint": chosen.fingerprint,
        "roles": chosen.roles,
    }
    if common.json:
        print(json.dumps({**facts, **as_json(diagnosis)}, ensure_ascii=False, indent=1))
    else:
        _print_page(Console(highlight=False, markup=False), facts, diagnosis)


def _refuse_odd(files: tuple[str, ...]) -> None:
    """No file at all, or an option that the command line took for a file, since `-` is one."""
    if not files:
        raise UserError("no text was given", fix="headstart tokenizer reviews.txt")
    for file in files:
        if file.startswith("-") and not is_stdin(file):
            raise UserError(f"unknown option {file}", fix="headstart tokenizer --help lists them")


def as_json(diagnosis: "Diagnosis") -> dict[str, Any]:
    """The page as data; shares are fractions."""
    return dataclasses.asdict(diagnosis) | {
        "bytes_per_token": diagnosis.bytes_per_token,
        "tokens_per_word": diagnosis.tokens_per_word,
        "embedding_parameters": diagnosis.embedding_parameters,
        "embedding_share": diagnosis.embedding_share,
        "probes_changed": sum(bool(came) for came in diagnosis.probes.values()),
    }


# ---- progress -----------------------------------------------------------------------------------------------


class _Bar:
    """One bar after another on standard error; silent where that is no terminal."""

    def __init__(self, progress: Progress | None, total_bytes: int | None) -> None:
        self._progress, self._total = progress, total_bytes
        self._task: TaskID | None = None

    def stage(self, name: str) -> None:
        if self._progress is None:
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=self._total)

    def advance(self, byte_count: int) -> None:
        if self._progress is None or self._task is None:
            return
        self._progress.advance(self._task, byte_count)
        task = self._progress.tasks[0]
        if task.total is not None and task.completed >= task.total and task.description == "learning":
            # Everything is read; how long the learning itself takes is not known beforehand.
            self._progress.update(self._task, total=None, description="learning pieces")


@contextmanager
def _progress(files: tuple[str, ...]) -> Iterator[_Bar]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Bar(None, None)
        return
    sizes = [os.path.getsize(file) for file in files if os.path.isfile(file)]
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, sum(sizes) if len(sizes) == len(files) else None)


# ---- the page -----------------------------------------------------------------------------------------------


def _print_page(console: Console, facts: dict[str, Any], diagnosis: "Diagnosis") -> None:
    what = facts.get("kind") or Path(facts["tokenizer"]).name
    title = Text(f"Tokenizer: {visible(what)}, {diagnosis.vocabulary:,} tokens", style="bold")
    console.print(title)
    sample = f"{diagnosis.text_bytes / 1e6:,.1f} MB in {diagnosis.texts:,} text{'' if diagnosis.texts == 1 else 's'}"
    names = ", ".join(Path(name).name for name in facts["files"])
    console.print(f"examined on {sample} of {visible(names)}", style="dim")
    for note in facts["notes"]:
        console.print(f"note: {visible(note)}", style="yellow")
    console.print()
    console.print(_figures(diagnosis))
    console.print()
    _print_probes(console, diagnosis, facts.get("kind"))
    console.print()
    console.print(_tokens(diagnosis))
    console.print()
    if facts["out"]:
        console.print(f"written: {visible(facts['out'])}", soft_wrap=True)
    elif "kind" in facts:
        console.print("Nothing was written; --out DIR keeps it.", style="dim")


def _figures(diagnosis: "Diagnosis") -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True, style="bold")
    table.add_column(style="dim")
    total = diagnosis.embedding_parameters / diagnosis.embedding_share
    rows = [
        ("bytes per token", f"{diagnosis.bytes_per_token:.2f}",
         "more is better: shorter sequences for the same text (3.5 to 4.5 is usual at 8,000)"),
        ("tokens per word", f"{diagnosis.tokens_per_word:.2f}",
         "1 would be a token for each word; over 2, words fall to pieces: a larger --vocab helps"),
        ("embedding", f"{diagnosis.embedding_share:.0%}",
         f"of a lab-size model ({diagnosis.embedding_parameters / 1e6:.2f} of {total / 1e6:.2f} million "
         "parameters; the output layer takes as much again): a larger --vocab costs here"),
        ("unused tokens", f"{diagnosis.unused:,}",
         "ordinary tokens that this text never uses: few is good, many are dead weight"),
        ("single characters", f"{diagnosis.single_byte_share:.1%}",
         "of all tokens are one byte or character, signs included; over a third is a poor fit"),
        ("unknown", f"{diagnosis.unknown / diagnosis.tokens:.2%}",
         "of all tokens stand for something that the vocabulary does not have: 0 is right"),
        ("texts changed", f"{diagnosis.texts_changed:,}",
         f"of {diagnosis.texts:,} do not come back from decoding as they were{_but_for(diagnosis)}: 0 is right"),
    ]  # fmt: skip
    if diagnosis.is_of_characters:  # then these are what they are
        rows = [row for row in rows if row[0] not in ("tokens per word", "single characters")]
    for row in rows:
        table.add_row(*row)
    return table


def _but_for(diagnosis: "Diagnosis") -> str:
    return f", but for {' and '.join(diagnosis.normalise)}" if diagnosis.normalise else ""


_NATURES = {
    "wordpiece": "WordPiece does not keep white space; text to be generated or translated wants bpe or unigram.",
    "char": "Characters that are not in the training text are unknown; bpe and unigram know every byte.",
}


def _print_probes(console: Console, diagnosis: "Diagnosis", kind: str | None) -> None:
    """What survives encoding and decoding, and what becomes of the rest."""
    survived = [name for name, came in diagnosis.probes.items() if not came]
    lost = {name: came for name, came in diagnosis.probes.items() if came}
    console.print(Text(f"Round trip{_but_for(diagnosis)}", style="bold"))
    if survived:
        console.print(Text("kept ", style="green") + Text(", ".join(survived)))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for name, came in lost.items():
        table.add_row(Text("lost", style="red"), name, Text(f"→ {visible(came)}", style="dim"))
    if lost:
        console.print(table)
    if kind in _NATURES:
        console.print(_NATURES[kind], style="dim")


def _tokens(diagnosis: "Diagnosis") -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("most frequent", no_wrap=True)
    table.add_column("times", justify="right")
    lists = [diagnosis.most_frequent]
    if not diagnosis.is_of_characters:
        table.add_column("longest", no_wrap=True, max_width=36, overflow="ellipsis")
        table.add_column("times", justify="right")
        lists.append(diagnosis.longest)
    for number in range(max(map(len, lists))):
        cells = []
        for tokens in lists:
            piece, count = tokens[number] if number < len(tokens) else ("", 0)
            cells += [_one_line(piece), f"{count:,}" if piece else ""]
        table.add_row(*cells)
    return table


def _one_line(piece: str) -> str:
    """A token on one line, with the spaces at its ends to be seen."""
    body = piece.strip(" ")
    before = len(piece) - len(piece.lstrip(" "))
    return "·" * before + visible(body.replace("\n", "\\n")) + "·" * (len(piece) - before - len(body))
