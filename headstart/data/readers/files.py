"""Opening text: a path or standard input, plain or gzip, decoded strictly and block by block.

Only one block is in memory at a time, so a file may be larger than memory and may be a single line. A byte order
mark is dropped; nothing else is changed: accents, case, composed and decomposed letters and line ends (LF, CRLF,
CR) stay.
"""

import codecs
import difflib
import gzip
import io
import itertools
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, cast

from headstart.config.reading import Reading
from headstart.data.readers.rows import ROW_CHARACTERS
from headstart.data.readers.sources import NOT_AN_ARCHIVE, NOT_AN_OFFICE_FILE, OnBytes, is_stdin
from headstart.errors import TryAgain, UserError

BLOCK_BYTES = 1 << 18

# No prose compresses 200-fold; a bomb does a thousandfold. Small files may: a table of equal rows, a test.
GZIP_RATIO = 200.0
GZIP_FREE_BYTES = 64 << 20

_MAGIC = {
    b"PK\x03\x04": ("a zip archive (or an office document)", NOT_AN_ARCHIVE),
    b"%PDF-": ("a PDF", NOT_AN_OFFICE_FILE),
    b"\xfd7zXZ\x00": ("an xz archive", NOT_AN_ARCHIVE),
    b"BZh91AY&SY": ("a bzip2 archive", NOT_AN_ARCHIVE),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", NOT_AN_ARCHIVE),
}

# What weights are often kept in elsewhere, and is not read: most of it can run code when it is loaded.
_FOREIGN = {
    **{bytes([0x80, version]): "a pickle, which can run code" for version in range(2, 6)},
    b"PK\x03\x04": "a zip archive, as torch.save writes them around a pickle, which can run code",
    b"\x93NUMPY": "a NumPy array, which may hold a pickle, which can run code",
    b"\x89HDF\r\n": "an HDF5 file",
    b"\x1f\x8b": "gzip data",
}


def foreign_form(path: str | Path) -> str:
    """What a file is, by its first bytes and in words, where it is of a kind that is never loaded; else nothing."""
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError:
        return ""
    return next((words for magic, words in _FOREIGN.items() if head.startswith(magic)), "")


def text_blocks(path: str | Path, reading: Reading, on_bytes: OnBytes = None) -> Iterator[str]:
    """The decoded text of a file, block by block."""
    return decoded(byte_blocks(path, on_bytes), str(path), reading)


# ---- bytes ----------------------------------------------------------------------------------------------


def byte_blocks(path: str | Path, on_bytes: OnBytes = None) -> Iterator[bytes]:
    """The bytes of a file, decompressed where the first bytes (not the name) say gzip."""
    where = str(path)
    with _opened(path) as raw:
        head = raw.read(10)
        raw.seek(0)
        if head.startswith(b"\x1f\x8b"):
            yield from _decompressed(raw, where, on_bytes)
            return
        if where.lower().endswith(".gz") and head:
            fix = "rename it without .gz"
            raise UserError("the name says gzip, the content is not", where=where, fix=fix, code="bad-format")
        for magic, (what, fix) in _MAGIC.items():
            if head.startswith(magic):
                raise UserError(f"is {what}, not text", where=where, fix=fix, code="bad-format")
        while block := raw.read(BLOCK_BYTES):
            if on_bytes:
                on_bytes(len(block))
            yield block


def _decompressed(raw: BinaryIO, where: str, on_bytes: OnBytes) -> Iterator[bytes]:
    stream, bytes_read, byte_count = gzip.GzipFile(fileobj=raw), 0, 0
    while True:
        try:
            block = stream.read(BLOCK_BYTES)
        except (EOFError, OSError, zlib.error) as error:
            what = "ends too early" if isinstance(error, EOFError) else f"is corrupt ({error})"
            what = f"the gzip data {what}, after {byte_count:,} decompressed bytes"
            fix = "copy or download the file again; `gzip -t` checks it"
            raise UserError(what, where=where, fix=fix, code="corrupt") from error
        if on_bytes:
            on_bytes(raw.tell() - bytes_read)
        if not block:
            return
        bytes_read, byte_count = raw.tell(), byte_count + len(block)
        if byte_count > GZIP_FREE_BYTES and byte_count > GZIP_RATIO * bytes_read:
            what = f"looks like a decompression bomb: {bytes_read:,} bytes gave over {byte_count:,}"
            fix = "if it is what you expect, decompress it with gunzip and give the plain file"
            raise UserError(what, where=where, fix=fix, code="too-large")
        yield block


def _opened(path: str | Path) -> AbstractContextManager[BinaryIO]:
    """A file that can be read from its beginning as often as wanted; a pipe is copied to a temporary one."""
    name = str(path)
    if is_stdin(name):
        return _spooled(sys.stdin.buffer, sys.stdin.buffer, name)
    what, fix = "is neither a file nor a pipe", "give a file"
    try:
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            return open(path, "rb")
        if stat.S_ISFIFO(status.st_mode):
            return _spooled((name, status.st_dev, status.st_ino), path, name)
        if stat.S_ISDIR(status.st_mode):
            what, fix = "is a directory", f"name the files in it, such as {name}/*.txt"
    except FileNotFoundError:
        what, fix = "no such file", _neighbour(Path(path))
    except PermissionError:
        what, fix = "no permission to read it", f"chmod +r {name}"
    except (OSError, ValueError) as error:  # a name with a NUL or one too long for the system
        what, fix = f"cannot be opened ({error})", "check the path"
    raise UserError(what, where=name, fix=fix, code="no-file")


def is_live(stream: BinaryIO) -> bool:
    """Whether a stream can be read while it is written; gzip is read as a whole."""
    return hasattr(stream, "peek") and not stream.peek(2).startswith(b"\x1f\x8b")


# A pipe gives its content once, but a corpus is read several times: what it gave is kept until the end.
_spools: dict[object, BinaryIO] = {}


@contextmanager
def _spooled(key: object, source: BinaryIO | str | Path, where: str) -> Iterator[BinaryIO]:
    if key not in _spools:
        spool = tempfile.NamedTemporaryFile(prefix="headstart-")  # noqa: SIM115
        try:
            with open(source, "rb") if isinstance(source, str | Path) else nullcontext(source) as pipe:
                shutil.copyfileobj(pipe, spool, BLOCK_BYTES)
            spool.flush()
        except OSError as error:
            spool.close()
            what = f"cannot be kept in {tempfile.gettempdir()} ({error.strerror})"
            fix = "free some space, or set TMPDIR to a larger disk"
            raise TryAgain(what, where=where, fix=fix, code="disk-full") from error
        _spools[key] = cast(BinaryIO, spool)
    with open(_spools[key].name, "rb") as copy:
        yield copy


def _neighbour(path: Path) -> str:
    try:
        names = os.listdir(path.parent)
    except OSError:
        return f"there is no directory {path.parent}"
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else "check the path"


# ---- text -----------------------------------------------------------------------------------------------


def decoded(blocks: Iterable[bytes], where: str, reading: Reading) -> Iterator[str]:
    """Text from bytes, wherever the blocks were cut; an error names the byte, counted in the plain stream."""
    decoder = _decoder(reading, where)
    # In UTF-16 and UTF-32 every other byte is NUL, so there the characters are looked at.
    wide = codecs.lookup(reading.encoding).name.startswith(("utf-16", "utf-32"))
    source = _with_a_head(blocks)
    offset, at_start = 0, True
    for block in source:
        if offset == 0 and not wide:
            _refuse_utf16(block, where)
        if not wide and (nul := block.find(b"\x00")) >= 0:
            raise _binary(f"byte {offset + nul:,}", where)
        text = _decode(decoder, block, offset, where, reading.encoding)
        offset += len(block)
        if at_start and text:
            at_start, text = False, text.removeprefix("\ufeff")
        if wide and "\x00" in text:
            raise _binary(f"about byte {offset:,}", where)
        if text:
            yield text


def _with_a_head(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes with at least four, or a line, in the first block, and an empty last block."""
    head, source = b"", iter(blocks)
    for block in source:
        head += block
        if len(head) >= 4 or head.endswith(b"\n"):  # a short line of a stream does not wait for the next
            break
    yield head
    yield from source
    yield b""


def _decoder(reading: Reading, where: str) -> codecs.IncrementalDecoder:
    try:
        "".encode(reading.encoding)
    except LookupError:
        what, fix = f"unknown encoding {reading.encoding!r}", "such as utf-8, latin-1, cp1252, utf-16"
        raise UserError(what, where=where, fix=fix, code="unknown-name") from None
    return codecs.getincrementaldecoder(reading.encoding)(reading.errors)


def _decode(decoder: codecs.IncrementalDecoder, block: bytes, offset: int, where: str, encoding: str) -> str:
    pending = len(decoder.getstate()[0])  # the beginning of a character that the last block cut
    try:
        return decoder.decode(block, final=not block)
    except UnicodeError as error:
        if not isinstance(error, UnicodeDecodeError):  # as the UTF-16 decoder does without a byte order mark
            raise UserError(f"not {encoding}: {error}", where=where, fix="check --encoding", code="bad-text") from error
        at = offset - pending + error.start
        bad_bytes = error.object[error.start : error.end].hex(" ")
        what = f"not {encoding} at byte {at:,}: {bad_bytes} ({error.reason})"
        fix = "--encoding=latin-1 (or cp1252) if it was saved so, --errors=replace to read on regardless"
        raise UserError(what, where=where, fix=fix, code="bad-text") from error


def _refuse_utf16(head: bytes, where: str) -> None:
    for name, order in itertools.product(("utf-32", "utf-16"), ("le", "be")):
        mark = "\ufeff".encode(f"{name}-{order}")
        if head.startswith(mark):
            what = f"starts at byte 0 with {mark.hex(' ')}, the byte order mark of {name.upper()}"
            raise UserError(what, where=where, fix=f"--encoding={name}, or save it as UTF-8", code="bad-text")


def _binary(position: str, where: str) -> UserError:
    fix = "--encoding=utf-16 if it is that; otherwise give a text file"
    what = f"NUL (00) at {position}: looks like UTF-16 or binary, not text"
    return UserError(what, where=where, fix=fix, code="bad-text")


# ---- lines ----------------------------------------------------------------------------------------------

_LINE_END = re.compile(r"\r\n|\n|\r")


def lines_with_ends(path: str | Path, reading: Reading, on_bytes: OnBytes = None) -> Iterator[str | None]:
    """The lines of a file, with their ends (LF, CRLF, CR); None for one that is longer than a row may be."""
    return itertools.chain.from_iterable(_lines_by_block(text_blocks(path, reading, on_bytes)))


def _lines_by_block(blocks: Iterable[str]) -> Iterator[list[str | None]]:
    """The lines that end in each block, with their ends."""
    line_ends = io.IncrementalNewlineDecoder(None, translate=False)  # never cuts a CRLF in two
    rest, too_long = "", False
    for block in blocks:
        text, start = rest + line_ends.decode(block), 0
        group: list[str | None] = []
        for end in _LINE_END.finditer(text, len(rest)):
            line = text[start : end.end()]
            group.append(None if too_long or len(line) > ROW_CHARACTERS else line)
            start, too_long = end.end(), False
        yield group
        rest = text[start:]
        if too_long or len(rest) > ROW_CHARACTERS:
            rest, too_long = "", True
    rest += line_ends.decode("", final=True)
    if rest or too_long:
        yield [None if too_long else rest]


def lines(path: str | Path, reading: Reading, on_bytes: OnBytes = None) -> Iterator[str | None]:
    """The lines of a file without their ends; None for one that is longer than a row may be."""
    for line in lines_with_ends(path, reading, on_bytes):
        yield None if line is None else line.rstrip("\r\n")


def lines_as_they_come(stream: BinaryIO, where: str, reading: Reading) -> Iterator[list[str | None]]:
    """The lines of a stream, as many at a time as have arrived."""
    blocks = iter(lambda: stream.read1(BLOCK_BYTES), b"")  # type: ignore[attr-defined]
    for group in _lines_by_block(decoded(blocks, where, reading)):
        yield [None if line is None else line.rstrip("\r\n") for line in group]
