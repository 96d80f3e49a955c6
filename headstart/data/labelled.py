"""Labelled sets, and the pairs of a translation, in memory.

A label is kept as text, so that `1` in a `.jsonl` and `1` in a `.csv` are the same class; nothing is trimmed.
`multilabel` takes a list of labels from each row (`.jsonl`, `.parquet`); `regression` takes finite numbers.

Pairs are a `.tsv` of two columns, without header and without quoting, or a table or `.jsonl` with `source` and
`target` (or `text_a` and `text_b`); each also as `.gz`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from headstart.config.reading import DEFAULT_READING, Reading
from headstart.data.readers.rows import BadRows, Columns, Row, shown, texts_in
from headstart.data.readers.sources import Source, form_of
from headstart.data.readers.tables import rows, tsv_cells
from headstart.errors import UserError
from headstart.tokenizers.tokenizer import Tokenizer

RowTask = Literal["classification", "multilabel", "regression"]
Label = str | tuple[str, ...] | float


@dataclass(frozen=True)
class LabelledSet:
    """Texts with their labels, in the order of the file."""

    path: str
    task: RowTask
    texts: list[str] = field(repr=False)
    labels: list[Label] = field(repr=False)
    locations: list[str] = field(repr=False)  # file and line of each row, for messages
    texts_b: list[str] | None = field(default=None, repr=False)  # where the file has `text_a` and `text_b`
    skipped: BadRows = field(default_factory=BadRows, compare=False)
    token_ids: list[np.ndarray] | None = field(default=None, repr=False, compare=False)  # texts, then texts_b
    tokenized_by: str = field(default="", compare=False)  # the fingerprint of the tokenizer that they are of

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, rows: Iterable[int]) -> "LabelledSet":
        """The set of these rows, in this order."""
        chosen, seconds, ids = list(rows), self.texts_b, self.token_ids
        starts = range(0, len(ids or []), len(self))
        return replace(
            self,
            texts=[self.texts[row] for row in chosen],
            labels=[self.labels[row] for row in chosen],
            locations=[self.locations[row] for row in chosen],
            texts_b=None if seconds is None else [seconds[row] for row in chosen],
            token_ids=None if ids is None else [ids[start + row] for start in starts for row in chosen],
        )

    def tokenized(self, tokenizer: Tokenizer) -> "LabelledSet":
        """The same set with its token ids; nothing is tokenized twice."""
        if self.tokenized_by == tokenizer.fingerprint:
            return self
        ids = tokenizer.encode_many([*self.texts, *(self.texts_b or [])])
        return replace(self, token_ids=ids, tokenized_by=tokenizer.fingerprint)

    @cached_property
    def whole_texts(self) -> list[str]:
        """One text a row: the text, or both of them joined by a line break."""
        if self.texts_b is None:
            return self.texts
        return [f"{a}\n{b}" for a, b in zip(self.texts, self.texts_b, strict=True)]

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the content: the same rows have the same one in every file format."""
        seconds = self.texts_b if self.texts_b is not None else [""] * len(self)
        return _content_fingerprint(zip(self.texts, seconds, self.labels, strict=True))


def _content_fingerprint(records: Iterable[tuple[object, ...]]) -> str:
    """The sha256 over rows of plain values."""
    content = hashlib.sha256()
    for record in records:
        content.update(json.dumps(record).encode() + b"\n")
    return content.hexdigest()


def read_labelled(path: Source, reading: Reading = DEFAULT_READING, *, task: RowTask = "classification") -> LabelledSet:
    """The labelled rows of a file (`-`: JSON lines from standard input), a dataset's folder, or a table in memory."""
    path = "-.jsonl" if isinstance(path, str | Path) and str(path) in ("-", "/dev/stdin") else path
    bad, label_in = BadRows(reading.skip_bad_rows), _LABEL_IN[task]
    texts: list[list[str]] = []
    labels, locations = list[Label](), list[str]()
    for row in rows(path, Columns(reading.text_column, reading.label_column), reading, bad):
        texts_of_row = texts_in(row, bad)
        label = label_in(row, bad) if texts_of_row else None
        if label is None:
            continue
        if texts and len(texts_of_row) != len(texts[0]):
            what = f"{len(texts_of_row)} texts where the first row has {len(texts[0])}"
            bad.refuse("missing column", what, row.where, "the same columns in every row")
            continue
        texts.append(texts_of_row)
        labels.append(label)
        locations.append(row.where)
    _refuse_empty(len(texts), path, bad)
    seconds = [second for _, second in texts] if len(texts[0]) == 2 else None
    return LabelledSet(str(path), task, [row[0] for row in texts], labels, locations, seconds, bad)


def _refuse_empty(row_count: int, path: Source, bad: BadRows) -> None:
    if not row_count:
        what = f"holds no usable row. {bad.summary()}".strip()
        raise UserError(what, where=str(path), fix="give a file with rows", code="too-few")


def _class_of(row: Row, bad: BadRows, value: object = None) -> str | None:
    value, column = row.values["label"] if value is None else value, row.names["label"]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if value is None or (isinstance(value, str) and (not value or value.isspace())):
        bad.refuse("empty label", f"column {column!r} is empty", row.where, "give a label or drop the row")
    elif not isinstance(value, str):
        fix = "--task=multilabel for lists" if isinstance(value, list) else "text or a whole number"
        fix = "--task=regression, or write a whole number" if isinstance(value, float) else fix
        bad.refuse("not a label", f"column {column!r} holds {shown(value)}, not a label", row.where, fix)
    elif any("\ud800" <= character <= "\udfff" for character in value):
        bad.refuse("lone surrogate", f"column {column!r} holds half of a character", row.where, "correct the label")
    else:
        return value
    return None


def _classes_in(row: Row, bad: BadRows) -> tuple[str, ...] | None:
    value = row.values["label"]
    if not isinstance(value, list):
        what = f"column {row.names['label']!r} holds {shown(value)}, not a list of labels"
        bad.refuse("not a list of labels", what, row.where, 'such as ["sad", "long"], or [] for none (.jsonl)')
        return None
    labels = list[str]()
    for item in value:
        if (label := _class_of(row, bad, "" if item is None else item)) is None:
            return None
        labels.append(label)
    return tuple(labels)


def _number_in(row: Row, bad: BadRows) -> float | None:
    value, column = row.values["label"], row.names["label"]
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        what = f"column {column!r} holds {shown(value)}, not a finite number"
        bad.refuse("not a finite number", what, row.where, "a number with a point, such as 3.5")
        return None
    return number


_LABEL_IN: dict[RowTask, Callable[[Row, BadRows], Label | None]] = {
    "classification": _class_of, "multilabel": _classes_in, "regression": _number_in,
}  # fmt: skip


def refuse_other_pairs(labelled: LabelledSet, are_pairs: bool, what: str) -> None:
    """Refuse single texts where pairs are wanted, and the reverse."""
    if (labelled.texts_b is not None) != are_pairs:
        there, wanted = ("single texts", "pairs of texts")[:: 1 if are_pairs else -1]
        fix = "give columns text_a and text_b" if are_pairs else "give one column of texts"
        raise UserError(f"holds {there}, and {what} {wanted}", where=labelled.path, fix=fix, code="mismatch")


# ---- pairs for translation


@dataclass(frozen=True)
class PairedSet:
    """Source texts with their target texts, in the order of the file."""

    path: str
    sources: list[str] = field(repr=False)
    targets: list[str] = field(repr=False)
    locations: list[str] = field(repr=False)  # file and line of each pair, for messages
    skipped: BadRows = field(default_factory=BadRows, compare=False)

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def whole_texts(self) -> list[str]:
        """One text a row: source and target joined by a line break."""
        return [f"{source}\n{target}" for source, target in zip(self.sources, self.targets, strict=True)]

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the content: the same rows have the same one in every file format."""
        return _content_fingerprint(zip(self.sources, self.targets, strict=True))

    def subset(self, rows: Sequence[int]) -> "PairedSet":
        """These pairs alone, in this order."""
        return replace(
            self,
            sources=[self.sources[row] for row in rows],
            targets=[self.targets[row] for row in rows],
            locations=[self.locations[row] for row in rows],
        )


def read_pairs(path: Source, reading: Reading = DEFAULT_READING) -> PairedSet:
    """The pairs of a file; `-` is a `.tsv` from standard input."""
    path = "-.tsv" if isinstance(path, str | Path) and str(path) in ("-", "/dev/stdin") else path
    bad = BadRows(reading.skip_bad_rows)
    pairs, locations = list[list[str]](), list[str]()
    is_tsv = form_of(path) == "tsv"
    for row in _tsv_pairs(str(path), reading, bad) if is_tsv else rows(path, _PairColumns(), reading, bad):
        if texts := texts_in(row, bad):
            pairs.append(texts)
            locations.append(row.where)
    _refuse_empty(len(pairs), path, bad)
    sources, targets = ([texts[side] for texts in pairs] for side in (0, 1))
    return PairedSet(str(path), sources, targets, locations, bad)


def _tsv_pairs(path: str, reading: Reading, bad: BadRows) -> Iterable[Row]:
    for line, cells in tsv_cells(path, reading, bad, quoting=False):
        where = f"{path}:{line}"
        if len(cells) == 2:
            yield Row(where, {"text": cells[0], "text_b": cells[1]}, {"text": "1", "text_b": "2"})
        else:
            what = f"{len(cells)} columns where a pair has 2"
            bad.refuse("ragged row", what, where, "source, one tab, target; no tab inside a text")


class _PairColumns(Columns):
    """The two columns of a pair, by their names."""

    def choose(self, there: Collection[str], where: str, hint: str = "") -> dict[str, str]:
        for source, target in (("source", "target"), ("text_a", "text_b")):
            if source in there and target in there:
                return {"text": source, "text_b": target}
        named = ", ".join([shown(name) for name in there][:12])
        what = "one text where a pair is needed" if "text" in there else "no columns source and target"
        what = f"{what}; the columns are {named or 'none'}"
        raise UserError(what, where=where, fix="give source and target", code="missing")


def evenly_spread(pairs: PairedSet, count: int) -> PairedSet:
    """So many pairs, evenly over the set: files are often in an order."""
    count = min(count, len(pairs))
    return pairs.subset([row * len(pairs) // count for row in range(count)])
