"""Rows of `.jsonl`, `.csv` and `.tsv` files, of lines with a parallel `.label` file, and of every other source.

* `.jsonl`: an object a line; blank lines are skipped.
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
from itertools import chain
from pathlib import Path
from typing import Any

from headstart.config.reading import Reading
from headstart.data.readers.arrow import arrow_rows
from headstart.data.readers.files import lines, lines_with_ends
from headstart.data.readers.rows import ROW_CHARACTERS, BadRows, Columns, Row, Rows, refuse_long, shown
from headstart.data.readers.sources import FilePath, Form, OnBytes, Source, Table, form_of
from headstart.errors import UserError


def rows(source: Source, columns: Columns, reading: Reading, bad: BadRows, on_bytes: OnBytes = None) -> Rows:
    """The rows of a file, a dataset's folder or a table, with the values of the wanted columns."""
    return _READERS[form_of(source)](source, columns, reading, bad, on_bytes)


def _jsonl_rows(path: FilePath, columns: Columns, reading: Reading, bad: BadRows, on_bytes: OnBytes) -> Rows:
    for number, line in enumerate(lines(path, reading, on_bytes), 1):
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
        raise ValueError(f"the key {twice!r} occurs twice")
    return record


Cells = Iterator[tuple[int, list[str]]]


def _table_rows(path: FilePath, columns: Columns, reading: Reading, bad: BadRows, on_bytes: OnBytes) -> Rows:
    table = (_csv_cells if form_of(path) == "csv" else tsv_cells)(path, reading, bad, on_bytes)
    first = next(table, None)
    if first is None:
        return
    line, header = first
    if columns.by_number:
        table = chain([first], table)
        header = [str(number) for number in range(1, len(header) + 1)]
    hint = ", or by number where the file has no header: --text-column=1 --label-column=2"
    names = columns.choose(header, f"{path}:{line}", hint)
    for name in names.values():
        if header.count(name) > 1:
            fix = "rename one of them"
            raise UserError(f"column {name!r} occurs twice", where=f"{path}:{line}", fix=fix, code="conflict")
    indexes = {role: header.index(name) for role, name in names.items()}
    for line, cells in table:
        where = f"{path}:{line}"
        if len(cells) == len(header):
            yield Row(where, {role: cells[index] for role, index in indexes.items()}, names)
        elif any(cell and not cell.isspace() for cell in cells):
            what = f"{len(cells)} columns where the first row has {len(header)}"
            bad.refuse("ragged row", what, where, "quote a cell that holds the separator, or correct the row")


def tsv_cells(path: FilePath, reading: Reading, bad: BadRows, on_bytes: OnBytes = None, quoting: bool = True) -> Cells:
    """The cells of each line that is not blank, with its number."""
    for number, line in enumerate(lines(path, reading, on_bytes), 1):
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


def _csv_cells(path: FilePath, reading: Reading, bad: BadRows, on_bytes: OnBytes) -> Cells:
    source = lines_with_ends(path, reading, on_bytes)
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
                continue
            why = f"no closing quote in {ROW_CHARACTERS:,} characters"
        except csv.Error as error:
            why = str(error)
        else:
            if cells:
                yield line, cells
            continue
        what, fix = f"unbalanced quotes ({why})", 'close the quote, and double each quote inside it: ""'
        bad.refuse("unbalanced quotes", what, f"{path}:{line}", fix)
        feed.take_back()


# ---- lines with a parallel label file -------------------------------------------------------------------


def _line_rows(path: FilePath, columns: Columns, reading: Reading, bad: BadRows, on_bytes: OnBytes) -> Rows:
    names, labels = {"text": "text"}, chain[str | None]()
    if columns.label is not None:
        names["label"] = "label"
        label_path = label_file(path)
        labels = chain(lines(label_path, reading, on_bytes))
        row_count, label_count = (sum(1 for _ in lines(file, reading)) for file in (path, label_path))
        if row_count != label_count:
            what = f"{row_count:,} rows of text but {label_count:,} labels in {label_path}"
            raise UserError(what, where=path, fix="give each line of the one its line in the other", code="mismatch")
    spells = spelled if form_of(path) == "spm" else str
    for number, line in enumerate(lines(path, reading, on_bytes), 1):
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
    names = [Path(str(path).removesuffix(".gz"))]
    while names[-1].suffix:
        names.append(names[-1].with_suffix(""))
    tried = [one.with_name(one.name + ending) for one in names for ending in (".label", ".label.gz")]
    if label_path := next((candidate for candidate in tried if candidate.is_file()), None):
        return label_path
    fix = f"put the labels, a line each, into {tried[-2]}; or give .jsonl, .csv or .tsv"
    raise UserError("lines of text without labels", where=path, fix=fix, code="missing")


def _memory_rows(table: Table, columns: Columns, reading: Reading, bad: BadRows, on_bytes: OnBytes) -> Rows:
    names = columns.choose(table.columns, str(table))
    for number, values in enumerate(table.read(list(names.values())), 1):
        yield Row(f"{table}:{number}", dict(zip(names, values, strict=True)), names)


_READERS: dict[Form, Callable[[Any, Columns, Reading, BadRows, OnBytes], Iterator[Row]]] = {
    "jsonl": _jsonl_rows,
    "csv": _table_rows,
    "tsv": _table_rows,
    "parquet": arrow_rows,
    "dataset": arrow_rows,
    "table": _memory_rows,
    "text": _line_rows,
    "spm": _line_rows,
}
