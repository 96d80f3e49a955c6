"""Opening text: a path or standard input, plain or gzip, decoded strictly and block by block.

Nothing here holds more than a block, so a file may be larger than memory and may be a single line. What is
done to the text, and all that is done: a byte order mark at its beginning is dropped. Line ends are the
business of whoever splits lines (LF, CRLF and a lone CR all end one); accents, case, composed and decomposed
letters stay as they came.
"""

import codecs
import difflib
import gzip
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

from headstart.errors import TryAgain, UserError
from headstart.text.dataset_folders import is_dataset
from headstart.text.sources import Source, Table

BLOCK_BYTES = 1 << 18
# No prose compresses 200-fold; a bomb does a thousandfold. Small files may: a table of equal rows, a test.
GZIP_RATIO = 200.0
GZIP_FREE_BYTES = 64 << 20

Form = Literal["text", "spm", "jsonl", "csv", "tsv", "parquet", "dataset", "table"]
FORMS: dict[str, Form] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".parquet": "parquet", ".spm": "spm",
}  # fmt: skip

_WEIGHTS = "give text; weights and pickles are not read here"
_OFFICE = "save it as plain text (.txt) in UTF-8"
_ARCHIVE = "unpack it; of the compressed forms only .gz is read"
_REFUSED = {
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".npz"), _WEIGHTS),
    **dict.fromkeys((".safetensors", ".onnx", ".model"), _WEIGHTS),
    **dict.fromkeys((".docx", ".doc", ".odt", ".rtf", ".pdf", ".epub", ".xls", ".xlsx", ".ods"), _OFFICE),
    **dict.fromkeys((".zip", ".7z", ".rar", ".tar", ".tgz", ".xz", ".bz2", ".zst"), _ARCHIVE),
}
_MAGIC = {
    b"PK\x03\x04": ("a zip archive (or an office document)", _ARCHIVE),
    b"%PDF-": ("a PDF", _OFFICE),
    b"\xfd7zXZ\x00": ("an xz archive", _ARCHIVE),
    b"BZh91AY&SY": ("a bzip2 archive", _ARCHIVE),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", _ARCHIVE),
}
# What weights are often kept in elsewhere, and is not read: most of it can run code when it is loaded.
_FOREIGN = {
    **{bytes([0x80, version]): "a pickle, which can run code" for version in range(2, 6)},
    b"PK\x03\x04": "a zip archive, as torch.save writes them around a pickle, which can run code",
    b"\x93NUMPY": "a NumPy array, which may hold a pickle, which can run code",
    b"\x89HDF\r\n": "an HDF5 file",
    b"\x1f\x8b": "gzip data",
}


@dataclass(frozen=True)
class Reading:
    """How bytes become text."""

    encoding: str = "utf-8"
    errors: str = "strict"
    """`strict` refuses bytes that are not text, `replace` puts U+FFFD in their place, `ignore` drops them."""

    max_ratio: float = GZIP_RATIO
    """A gzip file that gives more than 64 MiB and grows by more than this is refused as a bomb."""

    on_bytes: Callable[[int], None] | None = None
    """Called with the size of each block read from disk (compressed, if it is), for a progress bar."""


STRICT_UTF8 = Reading()


def form_of(path: Source) -> Form:
    """The form of a file by its name, `.gz` aside; what has no other known ending is plain text.

    `-` is standard input and plain text; `-.jsonl`, `-.csv` and `-.tsv` are standard input in those forms. A folder,
    or a split of one, is a dataset; what is no file at all is a table.
    """
    if isinstance(path, Table):
        return "table"
    if not is_stdin(path) and is_dataset(path):
        return "dataset"
    name = Path(str(path).lower().removesuffix(".gz"))
    ending = name.suffix or Path("x" + name.name).suffix
    if ending in _REFUSED:
        raise UserError(f"a {ending} file is not text", where=str(path), fix=_REFUSED[ending])
    return FORMS.get(ending, "text")


def foreign_form(path: str | Path) -> str:
    """What a file is, by its first bytes and in words, where it is of a kind that is never loaded; else nothing."""
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError:
        return ""
    return next((words for magic, words in _FOREIGN.items() if head.startswith(magic)), "")


def text_blocks(path: str | Path, reading: Reading) -> Iterator[str]:
    """The decoded text of a file, block by block."""
    return decoded(byte_blocks(path, reading), str(path), reading)


# ---- bytes ----------------------------------------------------------------------------------------------


def byte_blocks(path: str | Path, reading: Reading) -> Iterator[bytes]:
    """The bytes of a file, decompressed where it is gzip: told by its first bytes, not by its name."""
    where = str(path)
    with _opened(path) as raw:
        head = raw.read(10)
        raw.seek(0)
        if head.startswith(b"\x1f\x8b"):
            yield from _decompressed(raw, where, reading)
            return
        if where.lower().endswith(".gz") and head:
            raise UserError(
                "the name says gzip, the content is not", where=where, fix="rename it without .gz"
            )
        for magic, (what, fix) in _MAGIC.items():
            if head.startswith(magic):
                raise UserError(f"is {what}, not text", where=where, fix=fix)
        while block := raw.read(BLOCK_BYTES):
            if reading.on_bytes:
                reading.on_bytes(len(block))
            yield block


class _Counted:
    """A file that counts what is read from it."""

    def __init__(self, raw: BinaryIO, on_bytes: Callable[[int], None] | None) -> None:
        self.raw, self.on_bytes, self.bytes_read = raw, on_bytes, 0

    def read(self, size: int = -1) -> bytes:
        block = self.raw.read(size)
        self.bytes_read += len(block)
        if self.on_bytes:
            self.on_bytes(len(block))
        return block


def _decompressed(raw: BinaryIO, where: str, reading: Reading) -> Iterator[bytes]:
    counted, byte_count = _Counted(raw, reading.on_bytes), 0
    stream = gzip.GzipFile(fileobj=cast(BinaryIO, counted))
    while True:
        try:
            block = stream.read(BLOCK_BYTES)
        except (EOFError, OSError, zlib.error) as error:
            what = "ends too early" if isinstance(error, EOFError) else f"is corrupt ({error})"
            raise UserError(
                f"the gzip data {what}, after {byte_count:,} decompressed bytes",
                where=where,
                fix="copy or download the file again; `gzip -t` checks it",
            ) from error
        if not block:
            return
        byte_count += len(block)
        if byte_count > GZIP_FREE_BYTES and byte_count > reading.max_ratio * counted.bytes_read:
            raise UserError(
                f"looks like a decompression bomb: {counted.bytes_read:,} bytes gave over {byte_count:,}",
                where=where,
                fix="if it is what you expect, decompress it with gunzip and give the plain file",
            )
        yield block


def _opened(path: str | Path) -> AbstractContextManager[BinaryIO]:
    """A file that can be read from its beginning as often as wanted; a pipe is copied to a temporary one."""
    name = str(path)
    if is_stdin(name):
        return _spooled(sys.stdin.buffer, sys.stdin.buffer, name)
    try:
        status = os.stat(path)
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            raise UserError("is a directory", where=name, fix=f"name the files in it, such as {name}/*.txt")
        if stat.S_ISFIFO(mode):
            return _spooled((name, status.st_dev, status.st_ino), path, name)
        if not stat.S_ISREG(mode):
            raise UserError("is neither a file nor a pipe", where=name, fix="give a file")
        return open(path, "rb")
    except FileNotFoundError:
        raise UserError("no such file", where=name, fix=_neighbour(Path(path))) from None
    except PermissionError:
        raise UserError("no permission to read it", where=name, fix=f"chmod +r {name}") from None
    except (OSError, ValueError) as error:  # a name with a NUL or one too long for the system
        raise UserError(f"cannot be opened ({error})", where=name, fix="check the path") from error


def is_stdin(path: str | Path) -> bool:
    """Whether the path means standard input: `-` or `/dev/stdin`, or `-.jsonl` and the like."""
    name = str(path)
    return name in ("-", "/dev/stdin") or (name.startswith("-.") and not os.path.exists(name))


def is_live(stream: BinaryIO) -> bool:
    """Whether a stream can be read as it is written: gzip is told by its beginning, and read as a whole."""
    return hasattr(stream, "peek") and not stream.peek(2).startswith(b"\x1f\x8b")


# A pipe gives its content once, but a corpus is read several times: what it gave is kept until the end.
_spools: dict[object, BinaryIO] = {}


@contextmanager
def _spooled(key: object, source: BinaryIO | str | Path, where: str) -> Iterator[BinaryIO]:
    if key not in _spools:
        spool = tempfile.NamedTemporaryFile(prefix="headstart-")  # noqa: SIM115
        try:
            with open(source, "rb") if isinstance(source, str | Path) else _left_open(source) as pipe:
                shutil.copyfileobj(pipe, spool, BLOCK_BYTES)
            spool.flush()
        except OSError as error:
            spool.close()
            raise TryAgain(
                f"cannot be kept in {tempfile.gettempdir()} ({error.strerror})",
                where=where,
                fix="free some space, or set TMPDIR to a larger disk",
            ) from error
        _spools[key] = cast(BinaryIO, spool)
    with open(_spools[key].name, "rb") as copy:
        yield copy


@contextmanager
def _left_open(stream: BinaryIO) -> Iterator[BinaryIO]:
    yield stream


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
        text = _decode(decoder, block, offset, where, reading)
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
        codecs.lookup(reading.encoding)
    except LookupError:
        raise UserError(
            f"unknown encoding {reading.encoding!r}",
            where=where,
            fix="such as utf-8, latin-1, cp1252, utf-16",
        ) from None
    if reading.errors not in ("strict", "replace", "ignore"):
        raise UserError(
            f"unknown way with errors {reading.errors!r}", where=where, fix="strict, replace or ignore"
        )
    return codecs.getincrementaldecoder(reading.encoding)(reading.errors)


def _decode(
    decoder: codecs.IncrementalDecoder, block: bytes, offset: int, where: str, reading: Reading
) -> str:
    pending = len(decoder.getstate()[0])  # the beginning of a character that the last block cut
    try:
        return decoder.decode(block, final=not block)
    except UnicodeError as error:
        if not isinstance(error, UnicodeDecodeError):  # as the UTF-16 decoder does without a byte order mark
            raise UserError(
                f"not {reading.encoding}: {error}", where=where, fix="check --encoding"
            ) from error
        at = offset - pending + error.start
        found = error.object[error.start : error.end].hex(" ")
        raise UserError(
            f"not {reading.encoding} at byte {at:,}: {found} ({error.reason})",
            where=where,
            fix="--encoding latin-1 (or cp1252) if it was saved so, --errors replace to read on regardless",
        ) from error


def _refuse_utf16(head: bytes, where: str) -> None:
    for mark, name in (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if head.startswith(mark):
            raise UserError(
                f"starts at byte 0 with {mark.hex(' ')}, the byte order mark of {name.upper()}",
                where=where,
                fix=f"--encoding {name}, or save it as UTF-8",
            )


def _binary(place: str, where: str) -> UserError:
    return UserError(
        f"NUL (00) at {place}: looks like UTF-16 or binary, not text",
        where=where,
        fix="--encoding utf-16 if it is that; otherwise give a text file",
    )
