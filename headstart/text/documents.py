"""Corpora as documents, in pieces small enough to hold.

A text file (`.txt`, or any ending that is not another form's) holds documents in one of these ways:

* `line`: every line is a document; lines of white space only are passed over.
* `blank`: blank lines (white space only) separate documents, the lines between them are its segments.
* `file`: the whole file is one document and one segment; every character stays, line breaks too.
* `auto`: `blank` where a blank line stands between two lines with text, else `line`. It is decided for each
  file by itself, from the whole file: the file is read once more beforehand, up to its first such line.

LF, CRLF and a lone CR end a line. (A line that begins with more white space than a piece holds counts as text,
since nothing longer is kept to see what follows.) A row of `.jsonl`, `.csv`, `.tsv` or `.parquet`, of a saved dataset
or of a table in memory is a document of one segment, kept to the character (of two, where it has `text_a` and
`text_b`); a line of SentencePiece pieces (`.spm`) is one too, read as the text that they spell.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from headstart.errors import UserError, visible
from headstart.text.files import GZIP_RATIO, Reading, form_of, text_blocks
from headstart.text.rows import BadRows, Columns, texts_in
from headstart.text.sources import Source, Table
from headstart.text.tables import rows

PIECE_CHARACTERS = 65_536

Documents = Literal["auto", "line", "blank", "file"]


class Piece(NamedTuple):
    """A stretch of a document: at most PIECE_CHARACTERS long, cut just before white space where there is any."""

    text: str
    ends_segment: bool
    """The segment (a line of a document; the whole document where it has no lines) ends here."""

    ends_document: bool


def pieces(
    paths: Sequence[Source],
    *,
    documents: Documents = "auto",
    text_column: str = "text",
    encoding: str = "utf-8",
    errors: str = "strict",
    skip_bad_rows: bool = False,
    bad_rows: BadRows | None = None,
    max_ratio: float = GZIP_RATIO,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Piece]:
    """The documents of the files, piece by piece, in the order of the files.

    `bad_rows` takes the counts of skipped rows; without it they are told in a Python warning at the end.
    `on_bytes` is called with the bytes read from disk, as they are read, for a progress bar.
    """
    assert not isinstance(paths, str), "a list of paths, not one path"
    if documents not in get_args(Documents):
        raise UserError(f"documents={documents!r}", fix=f"one of {', '.join(get_args(Documents))}")
    reading = Reading(encoding, errors, max_ratio, on_bytes)
    bad = bad_rows or BadRows(skip_bad_rows)
    for path in paths:
        if not isinstance(path, Table) and form_of(path) == "text":
            source = _text_pieces(path, documents, reading)
        else:
            source = _row_pieces(path, text_column, reading, bad)
        yield from _with_text(source, path)
    if bad.counts and bad_rows is None:
        warnings.warn(visible(bad.summary()), stacklevel=2)


def _with_text(source: Iterator[Piece], path: Source) -> Iterator[Piece]:
    """The same pieces; a file that has none, or only white space, is refused."""
    has_text = False
    for piece in source:
        has_text = has_text or not piece.text.isspace()
        yield piece
    if not has_text:
        raise UserError("holds no text", where=str(path), fix="give a file with some text in it")


def _row_pieces(path: Source, text_column: str, reading: Reading, bad: BadRows) -> Iterator[Piece]:
    for row in rows(path, Columns(text_column), reading, bad):
        texts = texts_in(row, bad)
        for index, text in enumerate(texts):
            is_last = index == len(texts) - 1
            for piece in _whole_pieces([text]):
                yield piece._replace(ends_document=piece.ends_document and is_last)


def _text_pieces(path: str | Path, documents: Documents, reading: Reading) -> Iterator[Piece]:
    if documents == "file":
        return _whole_pieces(text_blocks(path, reading))
    if documents == "auto":
        first_look = text_blocks(path, replace(reading, on_bytes=None))
        documents = "blank" if has_blank_lines(first_look) else "line"
    stretches = _stretches(text_blocks(path, reading))
    return _line_pieces(stretches) if documents == "line" else _blank_pieces(stretches)


# ---- lines ----------------------------------------------------------------------------------------------


def has_blank_lines(blocks: Iterable[str]) -> bool:
    """Whether a line of white space only stands between two lines with text."""
    line_ends = io.IncrementalNewlineDecoder(None, translate=True)
    gap = None  # the line ends in the white space before this block, once there was text
    for block in blocks:
        text = line_ends.decode(block)
        body = text.rstrip() if gap is not None else text.strip()
        if body and _BLANK_LINE.search((gap or "") + body):
            return True
        if body or gap is not None:
            trailing = text[len(text.rstrip()) :] if body else text
            gap = "\n" * min(2, ("" if body else gap or "").count("\n") + trailing.count("\n"))
    return False


_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def _stretches(blocks: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Lines without their ends, and whether the line ends here: a longer one comes in several stretches."""
    line_ends = io.IncrementalNewlineDecoder(None, translate=True)
    rest = ""
    for block in blocks:
        *lines, rest = (rest + line_ends.decode(block)).split("\n")
        for line in lines:
            while len(line) > PIECE_CHARACTERS:
                at = cut_before_space(line)
                yield line[:at], False
                line = line[at:]
            yield line, True
        while len(rest) > PIECE_CHARACTERS:
            at = cut_before_space(rest)
            yield rest[:at], False
            rest = rest[at:]
    if rest:
        yield rest, True


# The white space of Unicode. Python's \s has the four separators 1C to 1F besides, which to a tokenizer
# are signs like any other: a cut before one could fall inside a token.
_CUT = re.compile(r"(?s:.*)\S(?=[^\S\x1c-\x1f])")


def cut_before_space(text: str) -> int:
    """Where to end a piece of a longer text: the last place in reach where white space follows something else."""
    near_the_end = PIECE_CHARACTERS - 256
    found = _CUT.match(text, near_the_end, PIECE_CHARACTERS + 1) or _CUT.match(text, 0, PIECE_CHARACTERS + 1)
    return found.end() if found else PIECE_CHARACTERS


def _line_pieces(stretches: Iterable[tuple[str, bool]]) -> Iterator[Piece]:
    starts_line = True
    for text, ends_line in stretches:
        if not (starts_line and ends_line and (not text or text.isspace())):
            yield Piece(text, ends_line, ends_line)
        starts_line = ends_line


def _blank_pieces(stretches: Iterable[tuple[str, bool]]) -> Iterator[Piece]:
    """Whether a piece ends its document is known only at the next line, so one piece is held back."""
    held: Piece | None = None
    starts_line = True
    for text, ends_line in stretches:
        is_blank = starts_line and ends_line and (not text or text.isspace())
        if held:
            yield held._replace(ends_document=is_blank)
        held = None if is_blank else Piece(text, ends_line, False)
        starts_line = ends_line
    if held:
        yield held._replace(ends_document=True)


def _whole_pieces(blocks: Iterable[str]) -> Iterator[Piece]:
    rest = ""
    for block in blocks:
        rest += block
        while len(rest) > PIECE_CHARACTERS:
            at = cut_before_space(rest)
            yield Piece(rest[:at], False, False)
            rest = rest[at:]
    if rest:
        yield Piece(rest, True, True)
