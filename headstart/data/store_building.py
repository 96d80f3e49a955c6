"""Building token stores: once for each text, tokenizer and way of reading, in one pass over the text.

The name of a store is derived from what it is built from, so that the next run finds it. It is written atomically: a
store that exists is complete.
"""

import hashlib
import itertools
import json
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np

from headstart.config.defaults import VALID_SHARE
from headstart.config.reading import DEFAULT_READING, Reading
from headstart.data.fingerprints import Fingerprint, fingerprint, is_unchanged
from headstart.data.readers.documents import Piece, pieces, sentence_pieces
from headstart.data.readers.rows import BadRows
from headstart.data.readers.sources import Source, by_weight
from headstart.data.splits import with_held_out
from headstart.data.token_store import FORMAT, Header, TokenStore
from headstart.errors import IntegrityError, Log, UserError
from headstart.storage.atomic import atomic_file, remove_stale
from headstart.tokenizers.tokenizer import Tokenizer, in_batches

SUFFIX = ".tokens"
AHEAD = 2  # batches: the library leaves the cores idle while its results are turned into arrays
LEAST_DOCUMENTS = 20  # with fewer, the end of the text is held out instead of some documents
Segments = Literal["lines", "sentences"]


class StorePart(NamedTuple):
    """What goes into one store: which of the sources, by number, and which of their documents."""

    sources: Sequence[int]
    part: Literal["all", "kept", "held out"] = "all"


def build_stores(
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    directory: str | Path,
    reading: Reading = DEFAULT_READING,
    *,
    parts: Sequence[StorePart] = (),
    segments: Segments = "lines",
    log: Log = lambda line: None,
) -> list[TokenStore]:
    """The stores of several parts of these files or tables, by default of all; missing ones are built in one pass.

    A store that is damaged, or that lies under another's name, is built again. `segments="sentences"` takes the
    sentences of a line as its segments, for next-sentence pairs. Documents are held out by the hash of their text.
    """
    parts = parts or [StorePart(range(len(sources)))]
    remove_stale(Path(directory), f"*{SUFFIX}")
    known = [fingerprint(source) for source in sources]
    headers = [
        _header(tokenizer, [known[number] for number in part.sources], reading, segments, part.part) for part in parts
    ]
    paths = [Path(directory) / f"{header.key[:16]}{SUFFIX}" for header in headers]
    stores = [_existing(path, header.key, log) for path, header in zip(paths, headers, strict=True)]
    missing = [number for number, store in enumerate(stores) if store is None]
    if missing:
        bad_rows = BadRows(reading.skip_bad_rows)
        routed = _routed(sources, [parts[number] for number in missing], reading, bad_rows)
        if segments == "sentences":
            routed = ((takers, one) for takers, piece in routed for one in sentence_pieces([piece]))
        with ExitStack() as stack:
            files = [stack.enter_context(atomic_file(paths[number])) for number in missing]
            write_stores(files, [headers[number] for number in missing], routed, tokenizer)
            if changed := [source.name for source in known if not is_unchanged(source)]:
                fix = "run again when nobody writes it"
                raise UserError("changed while it was read", where=changed[0], fix=fix, code="changed")
        if bad_rows.counts:
            log(bad_rows.summary())
    opened = zip(stores, paths, headers, strict=True)
    return [store or TokenStore.open(path, key=header.key) for store, path, header in opened]


def training_stores(
    sources: Sequence[Source],
    weights: Sequence[float],
    valid: Source | None,
    tokenizer: Tokenizer,
    directory: str | Path,
    reading: Reading,
    *,
    segments: Segments = "lines",
    log: Log = lambda line: None,
) -> list[TokenStore]:
    """A store to train on for each weight, and as the last one the store to measure by.

    That is `valid`, else a tenth of the documents by the hash of their text, else (with few documents) the last tenth
    of the text.
    """
    groups = [StorePart(numbers) for numbers in by_weight(range(len(sources)), weights).values()]
    everything = StorePart(range(len(sources)))

    def build(parts: Sequence[StorePart]) -> list[TokenStore]:
        texts = [*sources, *([] if valid is None else [valid])]
        return build_stores(texts, tokenizer, directory, reading, parts=parts, segments=segments, log=log)

    if valid is not None:
        return build([*groups, StorePart([len(sources)])])
    split = [*(part._replace(part="kept") for part in groups), everything._replace(part="held out")]
    # Most texts are encoded once; only where documents turn out to have no tokens the other way is taken too.
    for parts in [split, [everything]] if _has_many_documents(sources, reading) else [[everything], split]:
        stores = build(parts)
        document_count = sum(store.document_count for store in stores)
        if (document_count >= LEAST_DOCUMENTS) == (parts is split):
            break
    if document_count >= LEAST_DOCUMENTS:
        return stores
    if len(groups) > 1:
        what = f"{document_count} documents of different weights are too few to hold some out"
        raise UserError(what, fix="give --valid", code="too-few")
    return list(stores[0].cut_at(1 - VALID_SHARE))


def _has_many_documents(sources: Sequence[Source], reading: Reading) -> bool:
    """Whether there are enough documents with text to hold some out; reads no further than that."""
    text = pieces(sources, reading, bad_rows=BadRows(reading.skip_bad_rows))
    ends = (piece for piece in text if piece.ends_document and not piece.text.isspace())
    return len(list(itertools.islice(ends, LEAST_DOCUMENTS))) == LEAST_DOCUMENTS


def _header(
    tokenizer: Tokenizer, sources: Sequence[Fingerprint], reading: Reading, segments: Segments, part: str
) -> Header:
    """The header of a store that is still to be written; its key is a hash of all that the store is built from."""
    settings = [[name, getattr(reading, name)] for name in ("documents", "encoding", "errors", "text_column")]
    identity = [FORMAT, tokenizer.fingerprint, [source.identity() for source in sources], settings]
    identity += [reading.skip_bad_rows, segments, part]
    return Header(
        token_type="uint16" if tokenizer.size <= 1 << 16 else "uint32",
        key=hashlib.sha256(json.dumps(identity).encode()).hexdigest(), tokenizer=tokenizer.fingerprint,
        vocabulary=tokenizer.size, sources=[asdict(source) for source in sources],
    )  # fmt: skip


def _existing(path: Path, key: str, log: Log) -> TokenStore | None:
    if path.exists():
        try:
            return TokenStore.open(path, key=key, verify=True)
        except IntegrityError as error:
            log(f"{error.where}: {error.what}; building it again")
    return None


Routed = tuple[tuple[int, ...], Piece]  # a piece, and the numbers of the stores that take it


def _routed(
    sources: Sequence[Source], parts: Sequence[StorePart], reading: Reading, bad_rows: BadRows
) -> Iterator[Routed]:
    for number, source in enumerate(sources):
        wanted = [(store, part.part) for store, part in enumerate(parts) if number in part.sources]
        text = pieces([source], reading, bad_rows=bad_rows) if wanted else ()
        kept, held_out = (
            tuple(store for store, part in wanted if part in ("all", side)) for side in ("kept", "held out")
        )
        sided = with_held_out(text) if kept != held_out else ((False, piece) for piece in text)
        for is_held_out, piece in sided:
            if takers := held_out if is_held_out else kept:
                yield takers, piece


def write_stores(
    files: Sequence[BinaryIO], headers: Sequence[Header], source: Iterable[Routed], tokenizer: Tokenizer
) -> None:
    """Encode each piece once and write it into its stores, in memory that does not depend on how much there is."""
    with ExitStack() as stack:
        writers = [_Writer(file, header, stack) for file, header in zip(files, headers, strict=True)]
        for batch, (ids, lengths) in _encoded(source, tokenizer):
            for number, writer in enumerate(writers):
                taken = np.array([number in takers for takers, _ in batch])
                ours = [piece for takers, piece in batch if number in takers]
                writer.add(ours, ids[np.repeat(taken, lengths)], lengths[taken])
        for writer in writers:
            writer.finish()


class _Writer:
    """One store as it is written: ids as they come, then where documents and segments end, then the header."""

    def __init__(self, file: BinaryIO, header: Header, stack: ExitStack) -> None:
        self.file, self.header = file, header
        self.documents, self.segments = (_Ends(Path(file.name).parent, stack) for _ in range(2))
        self.digest, self.token_count, self.text_bytes = hashlib.sha256(), 0, 0
        self.header_size = file.write(header.to_bytes())

    def add(self, batch: Sequence[Piece], ids: np.ndarray, lengths: np.ndarray) -> None:
        self._write(ids.astype(self.header.token_type).tobytes())
        ends = self.token_count + np.cumsum(lengths)
        self.documents.add(ends[[piece.ends_document for piece in batch]])
        self.segments.add(ends[[piece.ends_segment for piece in batch]])
        self.token_count += len(ids)
        self.text_bytes += sum(len(piece.text.encode("utf-8", "replace")) for piece in batch)

    def finish(self) -> None:
        """Write the index behind the ids, and the header, whose numbers are known now."""
        assert self.documents.last == self.segments.last == self.token_count, "a piece that ends no document"
        for raw in itertools.chain(self.documents.blocks(), self.segments.blocks()):
            self._write(raw)
        header = replace(
            self.header, token_count=self.token_count, text_bytes=self.text_bytes, sha256=self.digest.hexdigest(),
            document_count=self.documents.count, segment_count=self.segments.count,
        )  # fmt: skip
        self.file.seek(0)
        self.file.write(header.to_bytes(self.header_size))

    def _write(self, raw: bytes) -> None:
        self.file.write(raw)
        self.digest.update(raw)


def _encoded(
    source: Iterable[Routed], tokenizer: Tokenizer
) -> Iterator[tuple[list[Routed], tuple[np.ndarray, np.ndarray]]]:
    """Batches with their ids, in order: while one is written two more are read and encoded."""
    waiting: deque[tuple[list[Routed], Future[tuple[np.ndarray, np.ndarray]]]] = deque()
    with ThreadPoolExecutor(AHEAD) as workers:
        for batch in in_batches(source, lambda routed: len(routed[1].text)):
            waiting.append((batch, workers.submit(tokenizer.encode_flat, [piece.text for _, piece in batch])))
            if len(waiting) > AHEAD:
                batch, ids = waiting.popleft()
                yield batch, ids.result()
        while waiting:
            batch, ids = waiting.popleft()
            yield batch, ids.result()


class _Ends:
    """Where documents or segments end: the index stands behind the ids, and is kept in a file until then."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.file = stack.enter_context(tempfile.TemporaryFile(dir=directory))  # noqa: SIM115
        self.file.write(np.zeros(1, np.int64).tobytes())
        self.last = self.count = 0

    def add(self, ends: np.ndarray) -> None:
        """The next ends; one that is where the last one was has no token, and is dropped."""
        ends = ends[np.diff(ends, prepend=self.last) > 0]
        if len(ends):
            self.file.write(ends.astype(np.int64).tobytes())
            self.last, self.count = int(ends[-1]), self.count + len(ends)

    def blocks(self) -> Iterator[bytes]:
        self.file.seek(0)
        while block := self.file.read(1 << 20):
            yield block
