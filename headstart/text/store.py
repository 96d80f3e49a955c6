"""The token store: a corpus as ids in one memory-mapped file, so that it may be larger than memory.

    8 bytes    magic
    8 bytes    size of the header, where the ids start (a multiple of 4096)
    32 bytes   sha256 of the header's JSON
    JSON       format, dtype, counts, sha256 of the rest, key, tokenizer, sources; padded with spaces
    ids        uint16 where the vocabulary fits, else uint32
    documents  int64: where each document starts, and where the last one ends
    segments   int64: the same for segments; every document starts one

No special tokens are in it: frames are put on when batches are made. Documents and segments without a single
token are not kept. Sizes and header are checked at every opening, the sha256 of the rest when asked.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headstart.errors import IntegrityError
from headstart.randomness import stream

MAGIC = b"HEADSTTK"
FORMAT = 1
ALIGNMENT = 4096
_FIXED = 48  # magic, size, sha256
_OFFSET_BYTES = 8


@dataclass(frozen=True)
class Header:
    """What a store says of itself."""

    token_type: str
    token_count: int = 0
    document_count: int = 0
    segment_count: int = 0
    sha256: str = ""
    key: str = ""
    """Derived from sources, tokenizer and reading: what the store was built from."""

    tokenizer: str = ""
    """The fingerprint of the tokenizer."""

    vocabulary: int = 0
    text_bytes: int = 0
    """Of the text in UTF-8: what bits per byte are counted by."""

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


class TokenStore:
    """Ids with the places where documents and segments start."""

    def __init__(
        self,
        tokens: np.ndarray,
        documents: np.ndarray,
        segments: np.ndarray,
        header: Header,
        path: Path | None,
    ) -> None:
        self.tokens = tokens
        """All ids, one after another."""

        self.documents = documents
        """Where each document starts in the ids, and where the last one ends: one more than documents."""

        self.segments = segments
        """The same for segments."""

        self.header = header
        self.path = path

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def document_count(self) -> int:
        return len(self.documents) - 1

    def document(self, number: int) -> np.ndarray:
        """The ids of one document."""
        return self.tokens[self.documents[number] : self.documents[number + 1]]

    def segments_of(self, number: int) -> np.ndarray:
        """Where the segments of one document start, and where the last one ends."""
        first, last = np.searchsorted(self.segments, self.documents[number : number + 2])
        return self.segments[first : last + 1]

    def shuffled(self, seed: int) -> "TokenStore":
        """The same documents, with the tokens of all of them in an order that means nothing."""
        order = stream(seed, "shuffled tokens").permutation(len(self))
        sha256 = hashlib.sha256(f"{self.header.sha256} shuffled {seed}".encode()).hexdigest()
        return TokenStore(
            self.tokens[order], self.documents, self.segments, replace(self.header, sha256=sha256), self.path
        )

    def cut_at(self, share: float) -> tuple["TokenStore", "TokenStore"]:
        """The text up to a share of its tokens, and the rest; what is cut in two becomes two documents."""
        place = int(share * len(self))
        return self._stretch(0, place), self._stretch(place, len(self))

    def _stretch(self, start: int, end: int) -> "TokenStore":
        documents, segments = (
            np.unique(np.clip(starts, start, end)) - start for starts in (self.documents, self.segments)
        )
        sha256 = hashlib.sha256(f"{self.header.sha256} {start} {end}".encode()).hexdigest()
        share = (end - start) / max(1, len(self))
        header = replace(
            self.header, token_count=end - start, document_count=len(documents) - 1,
            segment_count=len(segments) - 1, sha256=sha256, text_bytes=round(share * self.header.text_bytes),
        )  # fmt: skip
        return TokenStore(self.tokens[start:end], documents, segments, header, self.path)

    @classmethod
    def from_documents(cls, documents: Sequence[Sequence[Sequence[int]]]) -> "TokenStore":
        """A store in memory, from lists: documents of segments of ids."""
        segments = [[segment for segment in document if len(segment)] for document in documents]
        lengths = [len(segment) for document in segments for segment in document]
        totals = [sum(map(len, document)) for document in segments]
        tokens = np.array([i for document in segments for segment in document for i in segment], np.uint32)
        document_starts, segment_starts = _starts([total for total in totals if total]), _starts(lengths)
        header = Header("uint32", len(tokens), len(document_starts) - 1, len(segment_starts) - 1)
        return cls(tokens, document_starts, segment_starts, header, None)

    @classmethod
    def open(cls, path: str | Path, *, key: str = "", verify: bool = False) -> "TokenStore":
        """Map a store; with a key it has to be the store of that key, with `verify` every byte is checked."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                header, start = _read_header(file, path)
                if key and header.key != key:
                    raise _damaged(path, "belongs to other text or another tokenizer")
                file.seek(start)
                if verify and hashlib.file_digest(file, "sha256").hexdigest() != header.sha256:
                    raise _damaged(path, "its content does not have the checksum that was written")
        except OSError as error:
            raise IntegrityError(
                f"cannot be read ({error.strerror})", where=str(path), fix="check the path"
            ) from error
        # Mapped in one piece: three maps of a file are three times the bookkeeping.
        payload = np.memmap(path, np.uint8, "r", offset=start, shape=(header.payload_bytes,))
        token_bytes = header.token_count * np.dtype(header.token_type).itemsize
        documents_end = token_bytes + (header.document_count + 1) * _OFFSET_BYTES
        return cls(
            payload[:token_bytes].view(header.token_type),
            _offsets(payload[token_bytes:documents_end]),
            _offsets(payload[documents_end:]),
            header,
            path,
        )


def _starts(lengths: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))])


def _offsets(raw: np.ndarray) -> np.ndarray:
    return raw.view(np.int64)


def _read_header(file: BinaryIO, path: Path) -> tuple[Header, int]:
    """The header and where the ids start, once the header and the file's size are found right."""
    fixed = file.read(_FIXED)
    if len(fixed) < _FIXED or not fixed.startswith(MAGIC):
        raise _damaged(path, "is no token store: it does not start with the magic bytes")
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
        raise _damaged(path, f"has format {fields.get('format')}, this version reads {FORMAT}")
    header = Header(**fields)
    if start + header.payload_bytes != file_bytes:
        raise _damaged(path, f"has {file_bytes:,} bytes instead of {start + header.payload_bytes:,}")
    return header, start


def _damaged(path: Path, what: str) -> IntegrityError:
    return IntegrityError(what, where=str(path), fix="delete the file: it is built again from the text")
