"""Tables that are written, by the ending of their name: .jsonl, .csv or .tsv; safe to open in a spreadsheet."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headstart.errors import UserError
from headstart.storage.atomic import atomic_file

FORMS = (".jsonl", ".csv", ".tsv")
WriteRow = Callable[[Mapping[str, Any]], None]

# A cell that begins so is a formula to a spreadsheet; the full-width forms count too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?%?")


def safe_cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula begins with '; numbers stay numbers, lists are JSON."""
    if isinstance(value, dict | list | tuple):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}" if is_formula(value) else value


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would take a text for a formula."""
    return text.lstrip(" ").startswith(_FORMULA)


def check_form(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if path.suffix.lower() not in FORMS:
        raise UserError("no table that can be written", where=path, fix=f"end its name in {', '.join(FORMS)}")
    if not path.parent.is_dir():
        raise UserError("there is no such directory", where=path.parent, fix="make it first", code="no-file")


@contextmanager
def table_writer(path: Path) -> Iterator[WriteRow]:
    """Within `with`, a function that adds a row; the columns are those of the first row. The file appears at the end.

    In .csv and .tsv text that could be a formula begins with '; .jsonl has it as it is.
    """
    check_form(path)
    with atomic_file(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        table: csv.DictWriter[str] | None = None

        def write(row: Mapping[str, Any]) -> None:
            nonlocal table
            if path.suffix.lower() == ".jsonl":
                text.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
                return
            if table is None:
                delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
                table = csv.DictWriter(text, list(row), delimiter=delimiter, lineterminator="\n")
                table.writerow({name: safe_cell(name) for name in row})
            if extra := row.keys() - set(table.fieldnames):
                fix = "write a .jsonl, where each row has its own"
                raise UserError(f"a row has the column {min(extra)!r}, and the first has not", where=path, fix=fix)
            table.writerow({name: safe_cell(value) for name, value in row.items()})

        yield write
        text.detach()  # written out, and the file left open
