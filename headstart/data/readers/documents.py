"""Corpora as documents, in pieces of bounded size.

What a document of a text file is:

* `line`: every line; lines of white space are skipped.
* `blank`: the lines between two blank lines; each line is a segment.
* `file`: the whole file, with every character, as one segment.
* `auto`: `blank` where a blank line separates two lines with text, else `line`; decided for each file by reading it
  up to its first such line.

LF, CRLF and a lone CR end a line. (A line that begins with more white space than fits a piece counts as text.) A row
of `.jsonl`, `.csv`, `.tsv`, `.parquet`, of a saved dataset or of a table in memory is a document of one segment, or of
two where it has `text_a` and `text_b`; so is a line of SentencePiece pieces (`.spm`), read as the text they spell.
"""

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headstart.config.reading import DEFAULT_READING, Reading
from headstart.data.readers.files import text_blocks
from headstart.data.readers.rows import BadRows, Columns, texts_in
from headstart.data.readers.sources import OnBytes, Source, Table, form_of
from headstart.data.readers.tables import rows
from headstart.errors import UserError, visible

PIECE_CHARACTERS = 65_536


class Piece(NamedTuple):
    """A stretch of a document: at most PIECE_CHARACTERS long, cut just before white space where there is any."""

    text: str
    ends_segment: bool  # a segment is a line of a document, or the whole of one that has no lines
    ends_document: bool


def pieces(
    paths: Sequence[Source],
    reading: Reading = DEFAULT_READING,
    *,
    bad_rows: BadRows | None = None,
    on_bytes: OnBytes = None,
) -> Iterator[Piece]:
    """The documents of the files, piece by piece, in the order of the files.

    `bad_rows` takes the counts of skipped rows; without it a Python warning reports them at the end.
    `on_bytes` is called with the bytes read from disk, as they are read, for a progress bar.
    """
    assert not isinstance(paths, str), "a list of paths, not one path"
    bad = bad_rows or BadRows(reading.skip_bad_rows)
    for path in paths:
        if not isinstance(path, Table) and form_of(path) == "text":
            source = _text_pieces(path, reading, on_bytes)
        else:
            source = _row_pieces(path, reading, bad, on_bytes)
        has_text = False
        for piece in source:
            has_text = has_text or not piece.text.isspace()
            yield piece
        if not has_text:
            fix = "give a file with some text in it"
            raise UserError("contains no text", where=str(path), fix=fix, code="bad-text")
    if bad.counts and bad_rows is None:
        warnings.warn(visible(bad.summary()), stacklevel=2)


def _row_pieces(path: Source, reading: Reading, bad: BadRows, on_bytes: OnBytes) -> Iterator[Piece]:
    for row in rows(path, Columns(reading.text_column), reading, bad, on_bytes):
        texts = texts_in(row, bad)
        for index, text in enumerate(texts):
            is_last = index == len(texts) - 1
            for piece in _whole_pieces([text]):
                yield piece._replace(ends_document=piece.ends_document and is_last)


def _text_pieces(path: str | Path, reading: Reading, on_bytes: OnBytes) -> Iterator[Piece]:
    documents = reading.documents
    if documents == "file":
        return _whole_pieces(text_blocks(path, reading, on_bytes))
    if documents == "auto":
        documents = "blank" if has_blank_lines(text_blocks(path, reading)) else "line"
    stretches = _stretches(text_blocks(path, reading, on_bytes))
    return _line_pieces(stretches) if documents == "line" else _blank_pieces(stretches)


def has_blank_lines(blocks: Iterable[str]) -> bool:
    """Whether a line of white space only stands between two lines with text."""
    line_ends = io.IncrementalNewlineDecoder(None, translate=True)
    # Block by block: twenty times as fast as line by line.
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
            *parts, end = cut_long(line)
            yield from ((part, False) for part in parts)
            yield end, True
        *parts, rest = cut_long(rest)
        yield from ((part, False) for part in parts)
    if rest:
        yield rest, True


def cut_long(text: str) -> Iterator[str]:
    """What is longer than a piece, in pieces, and at last the rest."""
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = start + cut_before_space(text[start : start + PIECE_CHARACTERS + 1])
        yield text[start:end]
        start = end
    yield text[start:]


# The white space of Unicode. Python's \s has the four separators 1C to 1F besides, which to a tokenizer
# are signs like any other: a cut before one could fall inside a token.
_CUT = re.compile(r"(?s:.*)\S(?=[^\S\x1c-\x1f])")


def cut_before_space(text: str) -> int:
    """Where to end a piece of a longer text: the last position where white space follows something else."""
    near_the_end = PIECE_CHARACTERS - 256
    match = _CUT.match(text, near_the_end, PIECE_CHARACTERS + 1) or _CUT.match(text, 0, PIECE_CHARACTERS + 1)
    return match.end() if match else PIECE_CHARACTERS


def _line_pieces(stretches: Iterable[tuple[str, bool]]) -> Iterator[Piece]:
    starts_line = True
    for text, ends_line in stretches:
        if not (starts_line and ends_line and (not text or text.isspace())):
            yield Piece(text, ends_line, ends_line)
        starts_line = ends_line


def _blank_pieces(stretches: Iterable[tuple[str, bool]]) -> Iterator[Piece]:
    """Whether a piece ends its document is known only at the next line, so one piece waits for it."""
    waiting: Piece | None = None
    starts_line = True
    for text, ends_line in stretches:
        is_blank = starts_line and ends_line and (not text or text.isspace())
        if waiting:
            yield waiting._replace(ends_document=is_blank)
        waiting = None if is_blank else Piece(text, ends_line, False)
        starts_line = ends_line
    if waiting:
        yield waiting._replace(ends_document=True)


def _whole_pieces(blocks: Iterable[str]) -> Iterator[Piece]:
    rest = ""
    for block in blocks:
        *parts, rest = cut_long(rest + block)
        yield from (Piece(part, False, False) for part in parts)
    if rest:
        yield Piece(rest, True, True)


# ---- sentences, by punctuation ------------------------------------------------------------------------------
#
# A simple splitter for French and English: it wants an end mark, white space and a beginning, and knows some
# abbreviations. Joining the sentences gives back the text: the white space between two belongs to the second.

# An end: marks, then closing quotes and brackets (French ones after a space), then white space, then a capital,
# a digit or what opens a sentence. The white space is looked at but not taken.
_END = re.compile(
    r"""(?P<marks>[.!?…]+|[。！？]+)
        (?:[\s]?»|["'’”)\]]+)*
        (?=\s+(?:[«"'‘“(\[—–¿¡-]+\s?)?(?P<next>\w))""",
    re.VERBOSE,
)

# Abbreviations that no sentence ends with, in French and in English; single capitals are initials.
_TITLES = "mm mme mmes mlle mlles mgr dr pr prof st ste mr mrs ms jr sr rev gen col capt lt sgt"
_IN_TEXT = "cf p pp vol chap éd ed fig av apr env ibid op cit vs e.g i.e viz approx n° bd tél"
_ABBREVIATIONS = frozenset(f"{_TITLES} {_IN_TEXT}".split())
_LAST_WORD = re.compile(r"[\w.°-]+$")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, with the white space before each; their concatenation is the text."""
    sentences, start = [], 0
    for end in _END.finditer(text):
        if _ends_sentence(text, end):
            sentences.append(text[start : end.end()])
            start = end.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _ends_sentence(text: str, end: re.Match[str]) -> bool:
    if end["next"].islower():
        return False
    word = _LAST_WORD.search(text, max(0, end.start() - 20), end.start())
    if end["marks"] != "." or not word:
        return True
    is_initial = len(word[0]) == 1 and word[0].isupper()
    return not is_initial and word[0].lower() not in _ABBREVIATIONS


def sentence_pieces(source: Iterable[Piece]) -> Iterator[Piece]:
    """The same text with every sentence as a segment."""
    for piece in source:
        sentences = split_sentences(piece.text) or [""]
        for sentence in sentences[:-1]:
            yield Piece(sentence, True, False)
        yield piece._replace(text=sentences[-1])
