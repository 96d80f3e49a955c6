"""The token store: a corpus as ids in one memory-mapped file, so that it may be larger than memory.

A small one is read into memory: what happens to its file then disturbs nobody.

    8 bytes    magic
    8 bytes    size of the header, where the ids start (a multiple of 4096)
    32 bytes   sha256 of the header's JSON
    JSON       format, dtype, counts, sha256 of the rest, key, tokenizer, sources; padded with spaces
    ids        uint16 where the vocabulary fits, else uint32
    documents  int64: where each document starts, and where the last one ends
    segments   int64: the same for segments; every document starts one

It holds no special tokens: frames are added when batches are made. Documents and segments without a token are
dropped. Opening checks sizes and header, and on request the sha256 of the rest.
"""

import hashlib
import io
import json
import os
import weakref
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headstart.errors import Code, IntegrityError
from headstart.randomness import stream

MAGIC = b"HEADSTTK"
FORMAT = 1
ALIGNMENT = 4096
MOST_IN_MEMORY = 64 << 20  # bytes; each process has its own
_FIXED = 48  # magic, size, sha256
_OFFSET_BYTES = 8


@dataclass(frozen=True)
class Header:
    """What the header of a store holds."""

    token_type: str
    token_count: int = 0
    document_count: int = 0
    segment_count: int = 0
    sha256: str = ""
    key: str = ""  # derived from sources, tokenizer and reading: what the store was built from
    tokenizer: str = ""  # the fingerprint of the tokenizer
    vocabulary: int = 0
    text_bytes: int = 0  # of the text in UTF-8, for bits per byte
    sources: list[dict[str, Any]] = field(default_factory=list)
    format: int = FORMAT

    @property
    def payload_bytes(self) -> int:
        offsets = self.document_count + self.segment_count + 2
        return self.token_count * np.dtype(self.token_type).itemsize + offsets * _OFFSET_BYTES

    def to_bytes(self, size: int = 0) -> bytes:
        """The beginning of the file, up to the ids; a given size must be large enough."""
        raw = json.dumps(asdict(self), ensure_ascii=False).encode()
        least = _FIXED + len(raw)
        size = size or -(-(least + 256) // ALIGNMENT) * ALIGNMENT  # room for counts that are not known yet
        assert least <= size
        raw += b" " * (size - least)
        return MAGIC + size.to_bytes(8, "little") + hashlib.sha256(raw).digest() + raw


@dataclass(frozen=True, eq=False)
class TokenStore:
    """The ids of a corpus, with the positions where documents and segments start."""

    tokens: np.ndarray  # all ids, one after another
    documents: np.ndarray  # where each document starts in the ids, and where the last one ends
    segments: np.ndarray  # the same for segments
    header: Header
    path: Path | None
    mapped: "MappedFile | None" = None

    def check(self) -> None:
        """Refuse to go on where the file was overwritten since it was mapped: what was read of it may be anything."""
        if self.mapped is not None:
            self.mapped.check()

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def document_count(self) -> int:
        return len(self.documents) - 1

    def shuffled(self, seed: int) -> "TokenStore":
        """The same documents, with all tokens in random order."""
        order = stream(seed, "shuffled tokens").permutation(len(self))
        sha256 = hashlib.sha256(f"{self.header.sha256} shuffled {seed}".encode()).hexdigest()
        return replace(self, tokens=self.tokens[order], header=replace(self.header, sha256=sha256))

    def cut_at(self, share: float) -> tuple["TokenStore", "TokenStore"]:
        """The text up to a share of its tokens, and the rest; what is cut in two becomes two documents."""
        middle = int(share * len(self))
        return self.part(0, middle), self.part(middle, len(self))

    def part(self, start: int, end: int) -> "TokenStore":
        both = (self.documents, self.segments)
        documents, segments = (np.unique(starts.clip(start, end)) - start for starts in both)
        sha256 = hashlib.sha256(f"{self.header.sha256} {start} {end}".encode()).hexdigest()
        share = (end - start) / max(1, len(self))
        header = replace(
            self.header, token_count=end - start, document_count=len(documents) - 1,
            segment_count=len(segments) - 1, sha256=sha256, text_bytes=round(share * self.header.text_bytes),
        )  # fmt: skip
        return TokenStore(self.tokens[start:end], documents, segments, header, self.path, self.mapped)

    @classmethod
    def open(cls, path: str | Path, *, key: str = "", verify: bool = False) -> "TokenStore":
        """Map a store; with a key it has to be the store of that key, with `verify` every byte is checked."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                header, start = _read_header(file, path)
                if key and header.key != key:
                    raise _damaged(path, "belongs to other text or another tokenizer", code="mismatch")
                file.seek(start)
                is_small = header.payload_bytes <= MOST_IN_MEMORY
                source = io.BytesIO(file.read()) if is_small else file
                if verify and hashlib.file_digest(source, "sha256").hexdigest() != header.sha256:
                    raise _damaged(path, "its content does not have the checksum that was written")
                mapped = None if is_small else MappedFile(path, os.dup(file.fileno()), start, header.sha256)
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            raise IntegrityError(what, where=path, fix="check the path", code="no-file") from error
        # In one piece: three maps of a file are three times the bookkeeping.
        if isinstance(source, io.BytesIO):
            payload = np.frombuffer(source.getvalue(), np.uint8)
            if len(payload) != header.payload_bytes:
                raise _damaged(path, "was cut while it was read")
        else:
            payload = np.memmap(path, np.uint8, "r", offset=start, shape=(header.payload_bytes,))
        token_bytes = header.token_count * np.dtype(header.token_type).itemsize
        documents_end = token_bytes + (header.document_count + 1) * _OFFSET_BYTES
        tokens = payload[:token_bytes].view(header.token_type)
        documents = payload[token_bytes:documents_end].view(np.int64)
        return cls(tokens, documents, payload[documents_end:].view(np.int64), header, path, mapped)


class MappedFile:
    """The file behind a store, held open: it is known by its time whether somebody wrote into it."""

    def __init__(self, path: Path, descriptor: int, start: int, sha256: str) -> None:
        """`sha256` is that of what follows the start."""
        self._path, self._descriptor, self._start, self._sha256 = path, descriptor, start, sha256
        self._stamp = self._now()
        weakref.finalize(self, os.close, descriptor)

    def check(self) -> None:
        if (stamp := self._now()) == self._stamp:
            return
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(self._start)
            if hashlib.file_digest(file, "sha256").hexdigest() != self._sha256:
                fix = "run the same command again: it is built again, and training resumes from the last checkpoint"
                raise IntegrityError("was overwritten while it was read", where=self._path, fix=fix)
        self._stamp = stamp

    def _now(self) -> tuple[int, int]:
        about = os.fstat(self._descriptor)
        return about.st_mtime_ns, about.st_size


def _read_header(file: BinaryIO, path: Path) -> tuple[Header, int]:
    """The header and where the ids start, once the header and the file's size are found right."""
    fixed = file.read(_FIXED)
    if len(fixed) < _FIXED or not fixed.startswith(MAGIC):
        raise _damaged(path, "is not a token store: it does not start with the magic bytes")
    start = int.from_bytes(fixed[8:16], "little")
    file_bytes = file.seek(0, 2)
    if start > file_bytes:
        raise _damaged(path, "is cut off within its header")
    file.seek(_FIXED)
    raw = file.read(start - _FIXED)
    if hashlib.sha256(raw).digest() != fixed[16:]:
        raise _damaged(path, "its header does not have the checksum that was written")
    fields = json.loads(raw)
    if fields.get("format") != FORMAT:
        raise _damaged(path, f"has format {fields.get('format')}, this version reads {FORMAT}", code="unsupported")
    header = Header(**fields)
    if start + header.payload_bytes != file_bytes:
        raise _damaged(path, f"has {file_bytes:,} bytes instead of {start + header.payload_bytes:,}")
    return header, start


def _damaged(path: Path, what: str, code: Code = "corrupt") -> IntegrityError:
    return IntegrityError(what, where=path, fix="delete the file: it is built again from the text", code=code)
