"""The embedded corpus: French book reviews with their English, made by a grammar that knows each judgement.

Classification, generation and translation all have their default here, and the answer is known by construction.
The unlabelled text holds what a few labels cannot: expressions in the company of known ones; so pretraining can
help. In the null variant it holds the same words in company that means nothing; so pretraining cannot.

`reviews` and `pairs` give it as Python objects, `write` as ordinary files.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from headstart.errors import TryAgain, UserError
from headstart.text.demo_splits import PAIR_SIZES, SIZES, Pair, Review, pairs, reviews

__all__ = ["PAIR_SIZES", "SIZES", "Pair", "Review", "WrittenFile", "pairs", "reviews", "write"]

_ASIDE = ".demo.part"


class WrittenFile(NamedTuple):
    """A file of the corpus."""

    name: str
    rows: int
    size_bytes: int
    sha256: str
    fresh: bool  # written now; otherwise it was there already, with these bytes


def write(directory: str | Path, seed: int = 0, null: bool = False) -> list[WrittenFile]:
    """Write the corpus into a directory; files that are there already must be the same, to the byte."""
    folder = Path(directory)
    files = {name: (rows, text.encode("utf-8")) for name, (rows, text) in _contents(seed, null).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = {name for name in files if os.path.lexists(folder / name)}
        for name in sorted(there):
            _refuse_other(folder / name, files[name][1])
        _write_aside_then_rename(
            folder, {name: data for name, (_, data) in files.items() if name not in there}
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            size = sum(len(data) for _, data in files.values())
            raise TryAgain(
                "no room left", where=str(folder), fix=f"free {size / 1e6:.0f} MB and run it again"
            ) from error
        raise UserError(
            f"cannot be written ({error.strerror})",
            where=str(folder),
            fix="give a directory that you may write to",
        ) from error
    return [
        WrittenFile(name, rows, len(data), hashlib.sha256(data).hexdigest(), name not in there)
        for name, (rows, data) in files.items()
    ]


def _refuse_other(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        raise UserError(
            "is there already, with other content", where=str(path), fix="give another --out, or move it away"
        )


def _write_aside_then_rename(folder: Path, files: dict[str, bytes]) -> None:
    """All files are complete on disk before the first gets its name; a second attempt writes over a broken first."""
    if not files:
        return
    aside = folder / _ASIDE
    aside.mkdir(exist_ok=True)
    try:
        for name, data in files.items():
            with (aside / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for name in files:
            os.replace(aside / name, folder / name)
    finally:
        for name in files:
            (aside / name).unlink(missing_ok=True)
        aside.rmdir()


def _contents(seed: int, null: bool) -> dict[str, tuple[int, str]]:
    """For each file its number of rows and its text."""
    contents = {"unlabelled.txt": _lines(r.french for r in reviews(seed, "unlabelled", null=null))}
    for split in SIZES:
        if split != "unlabelled":
            contents[f"{split}.jsonl"] = _lines(map(_json_row, reviews(seed, split)))
    for pair_split in PAIR_SIZES:
        contents[f"pairs.{pair_split}.tsv"] = _lines(map(_tsv_row, pairs(seed, pair_split)))
    contents["README.md"] = _lines(_readme(seed, null))
    return contents


def _lines(rows: Iterable[str]) -> tuple[int, str]:
    lines = list(rows)
    return len(lines), "".join(f"{line}\n" for line in lines)


def _json_row(review: Review) -> str:
    return json.dumps({"text": review.french, "label": review.label}, ensure_ascii=False)


def _tsv_row(pair: Pair) -> str:
    return f"{pair.english}\t{pair.french}"


def _readme(seed: int, null: bool) -> Sequence[str]:
    variant = "null variant, " if null else ""
    unlabelled = (
        "the same words as often, but each expression good or bad by a coin of its own: it teaches nothing of sentiment"
        if null
        else "one a line, in the manner of the labelled ones"
    )
    return [
        f"# The embedded corpus of Headstart ({variant}seed {seed})",
        "",
        "French book reviews and their English, made by a grammar; authors and titles are invented.",
        "The label is the reviewer's judgement, known from the grammar: what is granted, denied, compared or",
        "reported does not count, what is said in earnest does. Two in three expressions of judgement are rare in",
        "`train.jsonl` and common everywhere else.",
        "",
        "| file | rows | what |",
        "|---|---|---|",
        f"| `unlabelled.txt` | {SIZES['unlabelled']} | reviews: {unlabelled} |",
        *(
            f"| `{split}.jsonl` | {SIZES[split]} | reviews with a label, positive or negative in equal parts |"
            for split in SIZES
            if split != "unlabelled"
        ),
        *(
            f"| `pairs.{split}.tsv` | {count} | sentences and short reviews: English, tab, French |"
            for split, count in PAIR_SIZES.items()
        ),
        "",
        "No review is in two of the first four files and no pair has a side of another, case and accents aside.",
        "Near ones there are, as `data check` will say: short reviews of one frame with another word in it.",
        "",
        "```",
        "headstart data check --corpus unlabelled.txt --train train.jsonl --valid valid.jsonl --test test.jsonl",
        "headstart tokenizer unlabelled.txt --vocab 2000 --out tokenizer",
        "headstart pretrain --corpus unlabelled.txt --objective causal --tokenizer tokenizer --epochs 6 --out base",
        "headstart finetune --task classification --train train.jsonl --valid valid.jsonl --test test.jsonl \\",
        "    --labels 200 --start base --epochs 20 --out classifier",
        "```",
    ]
