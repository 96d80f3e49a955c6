"""Rows of `.jsonl`, `.csv` and `.tsv` files, of lines with a parallel `.label` file, and of all that has rows.

Each reader is a generator that holds one row.

* `.jsonl`: an object a line; blank lines are passed over.
* `.csv`: commas, or semicolons where the first line has no comma; quotes as in RFC 4180.
* `.tsv`: a row a line, tabs between. A cell in quotes is unquoted when the quotes inside it are doubled; any
  other quote is a character like the rest.
* `.parquet`, and folders of such files or of a saved dataset: in `arrow.py`, through the extra `data`.
* lines (`.txt`, `.spm`, …): a row a line, its label in the same line of `NAME.label` beside it, where NAME is
  the file's name less one or more endings: `train.review.spm.gz` goes with `train.label`. A line of a `.spm`
  file that begins with `▁` is SentencePiece pieces, read as the text that they spell.
"""

import csv
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from headstart.errors import UserError
from headstart.text.arrow import arrow_rows
from headstart.text.files import Form, Reading, form_of
from headstart.text.rows import (
    ROW_CHARACTERS,
    BadRows,
    Columns,
    Row,
    lines,
    lines_with_ends,
    refuse_long,
    shown,
)
from headstart.text.sources import Source, Table


def rows(source: Source, columns: Columns, reading: Reading, bad: BadRows) -> Iterator[Row]:
    """The rows of a file, a dataset's folder or a table, with the values of the wanted columns."""
    return _READERS[form_of(source)](source, columns, reading, bad)


# ---- JSON lines -----------------------------------------------------------------------------------------


def _jsonl_rows(path: str | Path, columns: Columns, reading: Reading, bad: BadRows) -> Iterator[Row]:
    for number, line in enumerate(lines(path, reading), 1):
        where = f"{path}:{number}"
        if line is None:
            refuse_long(where, bad)
        elif line and not line.isspace() and (record := _json_object(line, where, bad)) is not None:
            try:
                names = columns.choose(record, where)
            except UserError as error:
                bad.refuse("missing column", error.what, where, error.fix)
            else:
                yield Row(where, {role: record[name] for role, name in names.items()}, names)


def _json_object(line: str, where: str, bad: BadRows) -> dict[str, Any] | None:
    fix = 'an object a line, such as {"text": "…", "label": 1}'
    if line.lstrip().startswith("["):
        fix = "an object a line, not one list: jq -c '.[]' FILE makes lines of it"
    try:
        record = json.loads(line, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        bad.refuse("malformed JSON", f"malformed JSON: {error}", where, fix)
        return None
    if not isinstance(record, dict):
        bad.refuse("not an object", f"not a JSON object but {shown(record)}", where, fix)
        return None
    return record


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice")
    return record


# ---- tables ---------------------------------------------------------------------------------------------

Cells = Iterator[tuple[int, list[str]]]


def _csv_rows(path: str | Path, columns: Columns, reading: Reading, bad: BadRows) -> Iterator[Row]:
    return _table_rows(path, columns, _csv_cells(path, reading, bad), bad)


def _tsv_rows(path: str | Path, columns: Columns, reading: Reading, bad: BadRows) -> Iterator[Row]:
    return _table_rows(path, columns, tsv_cells(path, reading, bad), bad)


def _table_rows(path: str | Path, columns: Columns, table: Cells, bad: BadRows) -> Iterator[Row]:
    first = next(table, None)
    if first is None:
        return
    line, header = first
    if columns.by_number:
        table = chain([first], table)
        header = [str(number) for number in range(1, len(header) + 1)]
    hint = ", or by number where the file has no header: --text-column 1 --label-column 2"
    names = columns.choose(header, f"{path}:{line}", hint)
    for name in names.values():
        if header.count(name) > 1:
            raise UserError(f"column {name!r} stands twice", where=f"{path}:{line}", fix="rename one of them")
    places = {role: header.index(name) for role, name in names.items()}
    for line, cells in table:
        where = f"{path}:{line}"
        if len(cells) == len(header):
            yield Row(where, {role: cells[place] for role, place in places.items()}, names)
        elif any(cell and not cell.isspace() for cell in cells):
            what = f"{len(cells)} columns where the first row has {len(header)}"
            bad.refuse("ragged row", what, where, "quote a cell that holds the separator, or mend the row")


def tsv_cells(path: str | Path, reading: Reading, bad: BadRows, quoting: bool = True) -> Cells:
    """The cells of each line that is not blank, with its number."""
    for number, line in enumerate(lines(path, reading), 1):
        if line is None:
            refuse_long(f"{path}:{number}", bad)
        elif line:
            cells = line.split("\t")
            yield number, [_unquoted(cell) for cell in cells] if quoting else cells


def _unquoted(cell: str) -> str:
    inner = cell[1:-1]
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"' or '"' in inner.replace('""', ""):
        return cell
    return inner.replace('""', '"')


class _Lines:
    """Lines for the csv module, which remembers those of the row at hand: a bad row is its first line only."""

    def __init__(self, source: Iterator[str | None]) -> None:
        self.source, self.again, self.taken = source, deque[str | None](), list[str | None]()
        self.line, self.character_count = 0, 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self.again.popleft() if self.again else next(self.source)
        self.line += 1
        self.taken.append(line)
        self.character_count += len(line or "")
        if line is None or self.character_count > ROW_CHARACTERS:
            raise OverflowError
        return line

    def start_row(self) -> int:
        """Forget the last row; the line that the next one begins at."""
        self.taken, self.character_count = [], 0
        return self.line + 1

    def take_back(self) -> None:
        """Give all lines of this row again, except the first."""
        self.again.extendleft(reversed(self.taken[1:]))
        self.line -= len(self.taken) - 1


def _csv_cells(path: str | Path, reading: Reading, bad: BadRows) -> Cells:
    source = lines_with_ends(path, reading)
    first = next(source, None)
    delimiter = ";" if first and ";" in first and "," not in first else ","
    # The module's own limit of 131,072 characters a cell is one number for the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), ROW_CHARACTERS))
    feed = _Lines(chain([first], source) if first is not None else source)
    parser = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        line = feed.start_row()
        try:
            cells = next(parser)
        except StopIteration:
            return
        except OverflowError:
            if len(feed.taken) == 1:
                refuse_long(f"{path}:{line}", bad)
            else:
                _refuse_quotes(
                    f"{path}:{line}", f"no closing quote in {ROW_CHARACTERS:,} characters", feed, bad
                )
        except csv.Error as error:
            _refuse_quotes(f"{path}:{line}", str(error), feed, bad)
        else:
            if cells:
                yield line, cells


def _refuse_quotes(where: str, why: str, feed: _Lines, bad: BadRows) -> None:
    what = f"unbalanced quotes ({why})"
    bad.refuse("unbalanced quotes", what, where, 'close the quote, and double each quote inside it: ""')
    feed.take_back()


# ---- lines with a parallel label file -------------------------------------------------------------------


def _line_rows(path: str | Path, columns: Columns, reading: Reading, bad: BadRows) -> Iterator[Row]:
    names, labels = {"text": "text"}, chain[str | None]()
    if columns.label is not None:
        names["label"] = "label"
        label_path = label_file(path)
        labels = chain(lines(label_path, reading))
        _refuse_unequal(path, label_path, reading)
    spells = spelled if form_of(path) == "spm" else str
    for number, line in enumerate(lines(path, reading), 1):
        where, label = f"{path}:{number}", next(labels, None)
        if line is None:
            refuse_long(where, bad)
        elif columns.label is not None or not (line == "" or line.isspace()):
            yield Row(where, {"text": spells(line), "label": label}, names)


def spelled(line: str) -> str:
    """The text that SentencePiece pieces spell: `▁Que ▁faire ?` is `Que faire?`; other lines as they are."""
    return line.replace(" ", "").replace("▁", " ")[1:] if line.startswith("▁") else line


def label_file(path: str | Path) -> Path:
    """The file with the labels of a file of lines, beside it."""
    name = Path(str(path).removesuffix(".gz"))
    tried = []
    while True:
        tried += [name.with_name(name.name + ending) for ending in (".label", ".label.gz")]
        if not name.suffix:
            break
        name = name.with_suffix("")
    for candidate in tried:
        if candidate.is_file():
            return candidate
    raise UserError(
        "lines of text without labels",
        where=str(path),
        fix=f"put the labels, a line each, into {tried[-2]}; or give .jsonl, .csv or .tsv",
    )


def _refuse_unequal(path: str | Path, label_path: Path, reading: Reading) -> None:
    silent = replace(reading, on_bytes=None)
    row_count, label_count = (sum(1 for _ in lines(file, silent)) for file in (path, label_path))
    if row_count != label_count:
        raise UserError(
            f"{row_count:,} rows of text but {label_count:,} labels in {label_path}",
            where=str(path),
            fix="give each line of the one its line in the other",
        )


# ---- tables in memory -----------------------------------------------------------------------------------


def _memory_rows(table: Table, columns: Columns, reading: Reading, bad: BadRows) -> Iterator[Row]:
    names = columns.choose(table.columns, str(table))
    for number, values in enumerate(table.read(list(names.values())), 1):
        yield Row(f"{table}:{number}", dict(zip(names, values, strict=True)), names)


_READERS: dict[Form, Callable[[Any, Columns, Reading, BadRows], Iterator[Row]]] = {
    "jsonl": _jsonl_rows,
    "csv": _csv_rows,
    "tsv": _tsv_rows,
    "parquet": arrow_rows,
    "dataset": arrow_rows,
    "table": _memory_rows,
    "text": _line_rows,
    "spm": _line_rows,
}
