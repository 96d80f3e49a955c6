"""`headstart tokenizer`: train or examine a tokenizer, and print a report."""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from headstart.cli.consoles import byte_progress, plain_table
from headstart.cli.options import (
    CORPUS_READING,
    Common,
    CommonFlags,
    CorpusReadingFlags,
    OutPath,
    Words,
    conflict,
    in_bounds,
)
from headstart.config.schema import Bound
from headstart.config.training import MOST_PIECES, TokenizerConfig
from headstart.data.readers.sources import is_stdin
from headstart.errors import UserError, visible

if TYPE_CHECKING:
    from headstart.tokenizers.diagnosis import Diagnosis

Vocab = Annotated[int, in_bounds("vocab", Bound(1, MOST_PIECES))]


def tokenizer(
    *files: Annotated[str, Parameter(allow_leading_hyphen=True)],
    vocab: Vocab = TokenizerConfig.vocab,
    kind: Literal["bpe", "unigram", "wordpiece", "char"] = "bpe",
    normalise: Words | None = None,
    out: OutPath | None = None,
    existing: Annotated[Path | None, Parameter(name="--tokenizer")] = None,
    reading: CorpusReadingFlags = CORPUS_READING,
    common: CommonFlags = Common(),
) -> None:
    """Train a tokenizer on your text, or examine an existing one, and print a report.

    Without --out nothing is written: try sizes and kinds until the page looks right, then keep one. The same
    text gives the same tokenizer.json, to the byte. Special tokens of every objective are in it from the start.

    For example:

        headstart tokenizer reviews.txt.gz
        headstart tokenizer reviews.txt.gz novels.txt --vocab 16000 --out tokenizers/fr-16k
        headstart tokenizer train.csv --text-column review --kind unigram --json
        headstart tokenizer reviews.txt.gz --normalise lower-case,apostrophes --out tokenizers/fr-lower
        headstart tokenizer reviews.txt.gz --tokenizer tokenizers/fr-16k

    Args:
        files: Text to learn from and examine: .txt, .jsonl, .csv, .tsv or .parquet, also .gz; - for standard input.
        vocab: How many tokens, special ones included; fewer where the text does not give so many.
        kind: bpe and unigram work on bytes and lose nothing; wordpiece is BERT's; char has a token a character.
        normalise: Normalise text before it is cut, in training and in use: lower-case, apostrophes (all made
            straight), or both with a comma. Decoding then gives the normalised text.
        out: The directory to write tokenizer.json into.
        existing: Do not train: examine this tokenizer.json, or SentencePiece .model with its dict.txt.
    """
    if common.threads:  # before the library starts its threads
        os.environ["RAYON_NUM_THREADS"] = str(common.threads)
    from headstart.config.reading import Reading
    from headstart.data.readers.documents import pieces
    from headstart.data.readers.rows import BadRows
    from headstart.tokenizers.diagnosis import diagnose
    from headstart.tokenizers.huggingface import in_order
    from headstart.tokenizers.tokenizer import Tokenizer
    from headstart.tokenizers.training import train

    _refuse_odd(files)
    if existing is not None and out is not None:
        raise conflict("--tokenizer examines, --out keeps what was trained", "give one of the two")
    if existing is not None and normalise:
        raise conflict("--normalise with --tokenizer", "leave it out: a tokenizer has its own normalisation")
    ways = in_order(normalise or ())
    bad_rows = BadRows(reading.skip_bad_rows)
    with byte_progress(files) as bar:

        def texts() -> Iterator[str]:
            bad_rows.counts.clear()  # the files are read several times
            source = pieces(files, Reading(**reading.given()), bad_rows=bad_rows, on_bytes=bar.advance)
            return (piece.text for piece in source)

        facts: dict[str, Any] = {"files": list(files)}
        if existing is not None:
            chosen, text_bytes = Tokenizer.load(existing), None
            facts |= {"tokenizer": str(existing), "notes": []}
        else:
            training = train(texts, vocab=vocab, kind=kind, normalise=ways, on_stage=bar.stage)
            chosen, text_bytes = training.tokenizer, training.stats.text_bytes
            facts |= {"kind": kind, "corpus_bytes": text_bytes, "notes": training.notes}
        bar.stage("examining")
        diagnosis = diagnose(chosen, texts(), text_bytes=text_bytes)
    if bad_rows.counts:
        facts["notes"].append(bad_rows.summary())
    saved = str(chosen.save(out)) if out is not None else None
    facts |= {"out": saved, "fingerprint": chosen.fingerprint, "roles": chosen.roles}
    if common.json:
        changed = {"probes_changed": sum(map(bool, diagnosis.probes.values()))}
        print(json.dumps({**facts, **dataclasses.asdict(diagnosis), **changed}, ensure_ascii=False, indent=1))
    else:
        _print_page(Console(highlight=False, markup=False), facts, diagnosis)


def _refuse_odd(files: tuple[str, ...]) -> None:
    """No file at all, or an option that the command line took for a file, since `-` is one."""
    if not files:
        raise UserError("no text was given", fix="headstart tokenizer reviews.txt", code="missing")
    for file in files:
        if file.startswith("-") and not is_stdin(file):
            raise UserError(f"unknown option {file}", fix="headstart tokenizer --help lists them", code="unknown-name")


def _print_page(console: Console, facts: dict[str, Any], diagnosis: "Diagnosis") -> None:
    what = facts.get("kind") or Path(facts["tokenizer"]).name
    console.print(f"Tokenizer: {visible(what)}, {diagnosis.vocabulary:,} tokens", style="bold")
    sample = f"{diagnosis.text_bytes / 1e6:,.1f} MB in {diagnosis.texts:,} text{'' if diagnosis.texts == 1 else 's'}"
    names = ", ".join(Path(name).name for name in facts["files"])
    console.print(f"examined on {sample} of {visible(names)}", style="dim")
    for note in facts["notes"]:
        console.print(f"note: {visible(note)}", style="yellow")
    console.print("", _figures(diagnosis), "", sep="\n")
    _print_probes(console, diagnosis, facts.get("kind"))
    console.print("", _tokens(diagnosis), "", sep="\n")
    if facts["out"]:
        console.print(f"written: {visible(facts['out'])}", soft_wrap=True)
    elif "kind" in facts:
        console.print("Nothing was written; --out DIR keeps it.", style="dim")


def _figures(diagnosis: "Diagnosis") -> Table:
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
    columns = Column(no_wrap=True), Column(justify="right", no_wrap=True, style="bold"), Column(style="dim")
    return plain_table(*columns, rows=rows, show_header=False, padding=(0, 2, 0, 0))


def _but_for(diagnosis: "Diagnosis") -> str:
    return f", but for {' and '.join(diagnosis.normalise)}" if diagnosis.normalise else ""


_NATURES = {
    "wordpiece": "WordPiece does not keep white space; text to be generated or translated wants bpe or unigram.",
    "char": "Characters that are not in the training text are unknown; bpe and unigram know every byte.",
}


def _print_probes(console: Console, diagnosis: "Diagnosis", kind: str | None) -> None:
    """What survives encoding and decoding, and what becomes of the rest."""
    survived = [name for name, decoded in diagnosis.probes.items() if not decoded]
    lost = [
        (Text("lost", style="red"), name, Text(f"→ {visible(decoded)}", style="dim"))
        for name, decoded in diagnosis.probes.items() if decoded
    ]  # fmt: skip
    console.print(Text(f"Round trip{_but_for(diagnosis)}", style="bold"))
    if survived:
        console.print(Text("kept ", style="green") + Text(", ".join(survived)))
    if lost:
        console.print(plain_table("", "", "", rows=lost, show_header=False, padding=(0, 2, 0, 0)))
    if kind in _NATURES:
        console.print(_NATURES[kind], style="dim")


def _tokens(diagnosis: "Diagnosis") -> Table:
    lists = [diagnosis.most_frequent] + ([] if diagnosis.is_of_characters else [diagnosis.longest])
    columns = [
        Column("most frequent", no_wrap=True), Column("times", justify="right"),
        Column("longest", no_wrap=True, max_width=36, overflow="ellipsis"), Column("times", justify="right"),
    ]  # fmt: skip
    rows = [
        [cell for piece, count in pair for cell in (_one_line(piece), f"{count:,}" if piece else "")]
        for pair in itertools.zip_longest(*lists, fillvalue=("", 0))
    ]
    return plain_table(*columns[: 2 * len(lists)], rows=rows, padding=(0, 3, 0, 0))


def _one_line(piece: str) -> str:
    """A token on one line, with the spaces at its ends to be seen."""
    body = piece.strip(" ")
    before = len(piece) - len(piece.lstrip(" "))
    return "·" * before + visible(body.replace("\n", "\\n")) + "·" * (len(piece) - before - len(body))
