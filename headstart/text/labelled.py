"""Labelled sets: small enough to hold.

A label is kept as text, so that `1` in a `.jsonl` and `1` in a `.csv` are the same class; nothing is trimmed.
`multilabel` takes a list of labels from each row (`.jsonl`, `.parquet`); `regression` takes finite numbers.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from headstart.errors import UserError
from headstart.text.files import STRICT_UTF8, Reading
from headstart.text.rows import BadRows, Columns, Row, shown, texts_in
from headstart.text.sources import Source
from headstart.text.tables import rows

Task = Literal["classification", "multilabel", "regression"]
Label = str | tuple[str, ...] | float


@dataclass(frozen=True)
class LabelledSet:
    """Texts with their labels, in the order of the file."""

    path: str
    task: Task
    texts: list[str] = field(repr=False)
    labels: list[Label] = field(repr=False)
    places: list[str] = field(repr=False)
    """File and line of each row, for messages."""

    texts_b: list[str] | None = field(default=None, repr=False)
    """The second text of each row, where the file has `text_a` and `text_b`."""

    skipped: BadRows = field(default_factory=BadRows, compare=False)

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, rows: Iterable[int]) -> "LabelledSet":
        """The set of these rows, in this order."""
        chosen, seconds = list(rows), self.texts_b
        return replace(
            self,
            texts=[self.texts[row] for row in chosen],
            labels=[self.labels[row] for row in chosen],
            places=[self.places[row] for row in chosen],
            texts_b=None if seconds is None else [seconds[row] for row in chosen],
        )

    @cached_property
    def whole_texts(self) -> list[str]:
        """One text a row: the text, or both of them joined by a line break."""
        if self.texts_b is None:
            return self.texts
        return [f"{a}\n{b}" for a, b in zip(self.texts, self.texts_b, strict=True)]

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the content: the same rows have the same one, whatever the form of their file."""
        seconds = self.texts_b if self.texts_b is not None else [""] * len(self)
        return content_fingerprint(zip(self.texts, seconds, self.labels, strict=True))


def content_fingerprint(records: Iterable[tuple[object, ...]]) -> str:
    """The sha256 over rows of plain values."""
    content = hashlib.sha256()
    for record in records:
        content.update(json.dumps(record).encode() + b"\n")
    return content.hexdigest()


# ---- reading --------------------------------------------------------------------------------------------


def read_labelled(
    path: Source,
    *,
    task: Task = "classification",
    text_column: str = "text",
    label_column: str = "label",
    reading: Reading = STRICT_UTF8,
    skip_bad_rows: bool = False,
) -> LabelledSet:
    """The labelled rows of a file (`-` is JSON lines from standard input), a dataset's folder, or a table in memory."""
    path = "-.jsonl" if isinstance(path, str | Path) and str(path) in ("-", "/dev/stdin") else path
    bad, label_in = BadRows(skip_bad_rows), _LABEL_IN[task]
    texts: list[list[str]] = []
    labels, places = list[Label](), list[str]()
    for row in rows(path, Columns(text_column, label_column), reading, bad):
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
        places.append(row.where)
    refuse_empty(len(texts), path, bad)
    seconds = [second for _, second in texts] if len(texts[0]) == 2 else None
    return LabelledSet(str(path), task, [row[0] for row in texts], labels, places, seconds, bad)


def refuse_empty(row_count: int, path: Source, bad: BadRows) -> None:
    """Refuse a file of which no row can be used."""
    if not row_count:
        raise UserError(
            f"holds no usable row. {bad.summary()}".strip(), where=str(path), fix="give a file with rows"
        )


def _class_in(row: Row, bad: BadRows) -> str | None:
    return _class_of(row.values["label"], row, bad)


def _class_of(value: object, row: Row, bad: BadRows) -> str | None:
    column = row.names["label"]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if value is None or (isinstance(value, str) and (not value or value.isspace())):
        bad.refuse("empty label", f"column {column!r} is empty", row.where, "give a label or drop the row")
    elif not isinstance(value, str):
        fix = "--task multilabel for lists" if isinstance(value, list) else "text or a whole number"
        fix = "--task regression, or write a whole number" if isinstance(value, float) else fix
        bad.refuse("not a label", f"column {column!r} holds {shown(value)}, not a label", row.where, fix)
    elif any("\ud800" <= character <= "\udfff" for character in value):
        bad.refuse(
            "lone surrogate", f"column {column!r} holds half of a character", row.where, "mend the label"
        )
    else:
        return value
    return None


def _classes_in(row: Row, bad: BadRows) -> tuple[str, ...] | None:
    value = row.values["label"]
    if not isinstance(value, list):
        what = f"column {row.names['label']!r} holds {shown(value)}, not a list of labels"
        bad.refuse(
            "not a list of labels", what, row.where, 'such as ["sad", "long"], or [] for none (.jsonl)'
        )
        return None
    labels = []
    for item in value:
        label = _class_of(item, row, bad)
        if label is None:
            return None
        labels.append(label)
    return tuple(labels)


def _number_in(row: Row, bad: BadRows) -> float | None:
    value, column = row.values["label"], row.names["label"]
    try:
        number = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        )
    except (ValueError, OverflowError):
        number = None
    if number is None or not math.isfinite(number):
        what = f"column {column!r} holds {shown(value)}, not a finite number"
        bad.refuse("not a finite number", what, row.where, "a number with a point, such as 3.5")
        return None
    return number


_LABEL_IN: dict[Task, Callable[[Row, BadRows], Label | None]] = {
    "classification": _class_in,
    "multilabel": _classes_in,
    "regression": _number_in,
}
