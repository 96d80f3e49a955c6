"""Building a token store: once for each text, tokenizer and way of reading, streaming, or not at all.

The store's name is derived from what it is built from, so the next run finds it. It is written aside and
renamed when complete: whatever interrupts the building, a store that is there is a whole one.
"""

import hashlib
import itertools
import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from headstart.errors import IntegrityError, UserError
from headstart.text.aside import remove_stale, written_aside
from headstart.text.documents import Documents, Piece, pieces
from headstart.text.fingerprints import Fingerprint, fingerprint, is_as_it_was
from headstart.text.holdout import Part, document_part
from headstart.text.rows import BadRows
from headstart.text.sentences import sentence_pieces
from headstart.text.sources import Source
from headstart.text.store import FORMAT, Header, TokenStore
from headstart.text.tokenizer import BATCH_CHARACTERS, BATCH_TEXTS, Tokenizer

SUFFIX = ".tokens"
AHEAD = 2  # batches: the library leaves the cores idle while its results are turned into arrays
Segments = Literal["lines", "sentences"]


def build_store(
    paths: Sequence[Source],
    tokenizer: Tokenizer,
    directory: str | Path,
    *,
    segments: Segments = "lines",
    part: Part = "all",
    documents: Documents = "auto",
    text_column: str = "text",
    encoding: str = "utf-8",
    errors: str = "strict",
    skip_bad_rows: bool = False,
    verify: bool = True,
    on_bytes: Callable[[int], None] | None = None,
    on_note: Callable[[str], None] = lambda note: None,
) -> TokenStore:
    """The store of these files (or tables) under this tokenizer: the one that is there, else built now.

    A store that is there but damaged, or that lies under another's name, is built again, with a note.
    `segments="sentences"` takes the sentences of a line for its segments, where next-sentence pairs need them;
    `part` takes the documents that are kept, or held out, by the hash of their text.
    """
    reading: dict[str, Any] = {
        "documents": documents, "text_column": text_column, "encoding": encoding, "errors": errors,
    }  # fmt: skip
    sources = [fingerprint(path) for path in paths]
    identity = [FORMAT, tokenizer.fingerprint, [source.identity() for source in sources]]
    identity += [sorted(reading.items()), skip_bad_rows, segments, part]
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    path = Path(directory) / f"{key[:16]}{SUFFIX}"
    remove_stale(path.parent, SUFFIX)
    if path.exists():
        try:
            return TokenStore.open(path, key=key, verify=verify)
        except IntegrityError as error:
            on_note(f"{error.where}: {error.what}; building it again")
    header = Header(
        token_type="uint16" if tokenizer.size <= 1 << 16 else "uint32",
        key=key, tokenizer=tokenizer.fingerprint, vocabulary=tokenizer.size,
        sources=[source.as_dict() for source in sources],
    )  # fmt: skip
    bad_rows = BadRows(skip_bad_rows)
    source = pieces(paths, on_bytes=on_bytes, bad_rows=bad_rows, **reading)
    source = document_part(source, part)
    if segments == "sentences":
        source = sentence_pieces(source)
    with written_aside(path) as file:
        write_store(file, source, tokenizer, header)
        for known in sources:
            _refuse_changed(known)
    if bad_rows.counts:
        on_note(bad_rows.summary())
    return TokenStore.open(path, key=key)


def _refuse_changed(known: Fingerprint) -> None:
    if not is_as_it_was(known):
        raise UserError("changed while it was read", where=known.name, fix="run again when nobody writes it")


# ---- encoding ---------------------------------------------------------------------------------------------


def write_store(file: BinaryIO, source: Iterable[Piece], tokenizer: Tokenizer, header: Header) -> Header:
    """Encode the pieces and write a whole store, in memory that does not depend on how much there is."""
    beginning = header.to_bytes()
    file.write(beginning)
    digest, token_count, text_bytes = hashlib.sha256(), 0, 0
    beside = Path(file.name).parent
    with _Ends(beside) as documents, _Ends(beside) as segments:
        for batch, (ids, lengths) in _encoded(_batches(source), tokenizer):
            raw = ids.astype(header.token_type).tobytes()
            file.write(raw)
            digest.update(raw)
            ends = token_count + np.cumsum(lengths)
            documents.add(ends[[piece.ends_document for piece in batch]])
            segments.add(ends[[piece.ends_segment for piece in batch]])
            token_count += len(ids)
            text_bytes += sum(len(piece.text.encode("utf-8", "replace")) for piece in batch)
        assert documents.last == segments.last == token_count, "the last piece ends its segment and document"
        for raw in itertools.chain(documents.blocks(), segments.blocks()):
            file.write(raw)
            digest.update(raw)
        header = replace(
            header, token_count=token_count, text_bytes=text_bytes, sha256=digest.hexdigest(),
            document_count=documents.count, segment_count=segments.count,
        )  # fmt: skip
    file.seek(0)
    file.write(header.to_bytes(len(beginning)))
    return header


def _batches(source: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    characters = 0
    for piece in source:
        batch.append(piece)
        characters += len(piece.text)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_TEXTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _encoded(
    batches: Iterable[list[Piece]], tokenizer: Tokenizer
) -> Iterator[tuple[list[Piece], tuple[np.ndarray, np.ndarray]]]:
    """The batches with their ids, in order: while one is written two more are read and encoded."""
    waiting: deque[tuple[list[Piece], Future[tuple[np.ndarray, np.ndarray]]]] = deque()
    with ThreadPoolExecutor(AHEAD) as workers:
        for batch in batches:
            waiting.append((batch, workers.submit(tokenizer.encode_flat, [piece.text for piece in batch])))
            if len(waiting) > AHEAD:
                batch, ids = waiting.popleft()
                yield batch, ids.result()
        while waiting:
            batch, ids = waiting.popleft()
            yield batch, ids.result()


class _Ends:
    """Where documents or segments end: the index stands behind the ids, and waits in a file until then."""

    def __init__(self, directory: Path) -> None:
        self.file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self.file.write(np.zeros(1, np.int64).tobytes())
        self.last = self.count = 0

    def __enter__(self) -> "_Ends":
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()

    def add(self, ends: np.ndarray) -> None:
        """The next ends; one that is where the last one was has no token, and is passed over."""
        ends = ends[np.diff(ends, prepend=self.last) > 0]
        if len(ends):
            self.file.write(ends.astype(np.int64).tobytes())
            self.last, self.count = int(ends[-1]), self.count + len(ends)

    def blocks(self) -> Iterator[bytes]:
        self.file.seek(0)
        while block := self.file.read(1 << 20):
            yield block
