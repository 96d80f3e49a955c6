"""Rows, the columns to read from them, and what happens to bad ones."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from headstart.errors import UserError, nearest

ROW_CHARACTERS = 1 << 24
"""The longest row: JSON and quoted cells cannot be cut, so all of a row is in memory. (A line of text can be cut.)"""


class BadRow(NamedTuple):
    """A row that cannot be used: file and line, and what is wrong with it."""

    where: str
    reason: str
    what: str
    fix: str


class BadRows:
    """Rows that cannot be used: the first one is an error, or all are skipped, counted and listed."""

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.rows: list[BadRow] = []

    def refuse(self, reason: str, what: str, where: str, fix: str) -> None:
        """Raise, or count the row under its reason; the caller then skips it."""
        if not self.skip:
            raise UserError(what, where=where, fix=f"{fix}; or --skip-bad-rows", code="bad-row")
        self.counts[reason] += 1
        self.first.setdefault(reason, f"{where}: {what}")
        self.rows.append(BadRow(where, reason, what, fix))

    def summary(self) -> str:
        """Such as `3 bad rows skipped: 2 empty text (first at a.jsonl:4: …), 1 malformed JSON (…)`."""
        reasons = [f"{self.counts[name]} {name} (first at {first})" for name, first in self.first.items()]
        return f"{self.counts.total()} bad rows skipped: {', '.join(reasons)}" if reasons else ""


class Row(NamedTuple):
    """The wanted values of a row, by their role: `text`, `text_b`, `label`; `=NAME` for another column."""

    where: str  # the file and the line where the row begins, from 1 (in a parquet file the row)
    values: dict[str, Any]
    names: dict[str, str]  # the column that each role came from


Rows = Iterator[Row]


@dataclass(frozen=True)
class Columns:
    """The columns that are wanted: by name, or by number from 1 in a table without a header."""

    text: str = "text"
    label: str | None = None
    keeps_others: bool = False
    """Whether every column is wanted besides, under its own name after an equals sign."""

    @property
    def by_number(self) -> bool:
        """Whether the columns are numbers; some by name and some by number cannot be."""
        wanted = [self.text] if self.label is None else [self.text, self.label]
        numbers = [name for name in wanted if name.isdecimal()]
        if numbers and len(numbers) < len(wanted):
            fix = "give both by name, or both by number where the file has no header"
            what = f"columns {self.text!r} and {self.label!r}: one by number, one by name"
            raise UserError(what, fix=fix, code="conflict")
        return bool(numbers)

    def choose(self, there: Collection[str], where: str, hint: str = "") -> dict[str, str]:
        """The column of each role; `text_a` and `text_b` are used where there is no `text`."""
        if self.text in there:
            chosen = {"text": self.text}
        elif self.text == "text" and "text_a" in there and "text_b" in there:
            chosen = {"text": "text_a", "text_b": "text_b"}
        else:
            raise _missing(self.text, "--text-column", there, where, hint)
        if self.label is not None:
            if self.label not in there:
                raise _missing(self.label, "--label-column", there, where, hint)
            chosen["label"] = self.label
        if self.keeps_others:
            chosen |= {f"={name}": name for name in there}
        return chosen


def _missing(column: str, flag: str, there: Collection[str], where: str, hint: str) -> UserError:
    listed = ", ".join([shown(name) for name in there][:12]) + (", …" if len(there) > 12 else "")
    close = nearest(column, there)
    fix = f"{flag} NAME{f' ({close})' if close.startswith('did') else ''}{hint}"
    what = f"no column {column!r}; the columns are {listed or 'none'}"
    return UserError(what, where=where, fix=fix, code="unknown-name")


def texts_in(row: Row, bad: BadRows) -> list[str]:
    """The text of a row, or its two texts; an empty list when the row is bad and skipped."""
    texts = []
    for role in ("text", "text_b"):
        if role in row.values:
            if (text := _text_in(row, role, bad)) is None:
                return []
            texts.append(text)
    return texts


def _text_in(row: Row, role: str, bad: BadRows) -> str | None:
    value, column = row.values[role], row.names[role]
    if value is None or value == "" or (isinstance(value, str) and value.isspace()):
        bad.refuse("empty text", f"column {column!r} is empty", row.where, "give a text or drop the row")
    elif not isinstance(value, str):
        what = f"column {column!r} holds {shown(value)}, not text"
        bad.refuse("not text", what, row.where, "give text, in quotes")
    elif half := SURROGATE.search(value):
        what = f"column {column!r} holds half of a character, {half[0]!a}"
        bad.refuse("lone surrogate", what, row.where, "write the whole character or drop the escape")
    elif len(value) > ROW_CHARACTERS:
        refuse_long(row.where, bad)
    else:
        return value
    return None


SURROGATE = re.compile("[\ud800-\udfff]")


def shown(value: object) -> str:
    """A value as JSON, shortened, for a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def refuse_long(where: str, bad: BadRows) -> None:
    """Refuse a row that is longer than a row may be."""
    what = f"a row of over {ROW_CHARACTERS:,} characters"
    bad.refuse("row too long", what, where, "cut it into several rows, or give the text as .txt")
