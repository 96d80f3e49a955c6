"""Labelled rows looked for in a corpus that streams by.

Segments are compared with the rows, and whole documents too where they have several segments; a long one comes
in windows that overlap. Of the corpus only eight bytes a document are kept, and a sketch of the first million.
"""

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from headstart.text.documents import Piece
from headstart.text.folding import digest, folded_words
from headstart.text.near import LEAST_SHINGLES, NEAR, NearIndex, shingles_of

WINDOW_WORDS = 8_192
OVERLAP_WORDS = 2_048
SKETCHED_DOCUMENTS = 1_000_000
DOCUMENT_SKETCH = 16
_NOTHING = digest("")


class CorpusReader:
    """Takes a corpus piece by piece, and knows which rows it met."""

    def __init__(self, rows: Iterable[tuple[str, int, bytes]], index: NearIndex) -> None:
        """`rows` are (name of the set, row, digest of the folded text), in the order of the index."""
        self.document_count = 0
        self.equal: dict[tuple[str, int], int] = {}
        """For each row met, the document, from 0."""
        self.near: dict[tuple[str, int], tuple[int, float]] = {}
        """For each row met nearly, the document and the containment."""
        self._index, self._rows = index, [(name, row) for name, row, _ in rows]
        self._rows_of_key: dict[bytes, list[tuple[str, int]]] = defaultdict(list)
        for name, row, key in rows:
            self._rows_of_key[key].append((name, row))
        self._document_keys = array("Q")
        self._sketches: list[array[int]] = []
        self._segment, self._document = _Stretch(), _Stretch()
        self._segment_count = 0
        self._sketch: list[int] = []

    def take(self, piece: Piece) -> None:
        """Take the next piece of the corpus."""
        words = folded_words(piece.text)
        for window in self._segment.add(words, piece.ends_segment):
            self._compare(window)
        for window in self._document.add(words, piece.ends_document):
            if self._segment_count:  # up to the end of its first segment the document is that segment
                self._compare(window)
        if piece.ends_segment:
            self._find_equal(self._segment.key())
            self._segment, self._segment_count = _Stretch(), self._segment_count + 1
        if piece.ends_document:
            self._end_document()

    def _end_document(self) -> None:
        key = self._document.key()
        self._find_equal(key)
        self._document_keys.append(int.from_bytes(key[:8], "little"))
        if self.document_count < SKETCHED_DOCUMENTS:
            self._sketches.append(array("Q", self._sketch))
        self.document_count += 1
        self._document, self._segment_count, self._sketch = _Stretch(), 0, []

    def _find_equal(self, key: bytes) -> None:
        for row in self._rows_of_key.get(key, ()):
            self.equal.setdefault(row, self.document_count)

    def _compare(self, words: list[str]) -> None:
        shingles = shingles_of(words)
        # The smallest hashes of the whole are among the smallest of its parts.
        self._sketch = sorted({*self._sketch, *shingles[:DOCUMENT_SKETCH].tolist()})[:DOCUMENT_SKETCH]
        for candidate in self._index.candidates(shingles):
            row = self._rows[candidate]
            if row not in self.near and (share := self._index.share(candidate, shingles)) >= NEAR:
                self.near[row] = self.document_count, share

    # ---- within the corpus ------------------------------------------------------------------------------

    def repeats(self) -> Iterator[tuple[int, int]]:
        """Documents that stand earlier already, each with the first one of its kind."""
        keys = np.frombuffer(self._document_keys, np.uint64)
        _, firsts, kinds = np.unique(keys, return_index=True, return_inverse=True)
        nothing = np.uint64(int.from_bytes(_NOTHING[:8], "little"))
        for document in np.flatnonzero((firsts[kinds] < np.arange(len(keys))) & (keys != nothing)):
            yield int(document), int(firsts[kinds[document]])

    def near_repeats(self) -> Iterator[tuple[int, int, float]]:
        """Documents near an earlier one, by an estimate: the share of their common sketch that both have.

        Each document is compared with the last earlier ones that share a hash of its sketch.
        """
        equal = {document for document, _ in self.repeats()}
        last_with: dict[int, int] = {}
        for document, sketch in enumerate(self._sketches):
            if len(sketch) < LEAST_SHINGLES or document in equal:
                continue
            earlier = Counter(last_with[value] for value in sketch if value in last_with)
            last_with.update(dict.fromkeys(sketch, document))
            for other, _ in earlier.most_common(3):
                share = _resemblance(set(sketch), set(self._sketches[other]))
                if share >= NEAR:
                    yield document, other, share
                    break


def _resemblance(one: set[int], other: set[int]) -> float:
    """The share of runs that two texts have in common among all of both, estimated from their sketches."""
    smallest = sorted(one | other)[:DOCUMENT_SKETCH]
    return sum(value in one and value in other for value in smallest) / len(smallest)


class _Stretch:
    """A segment or a document as it grows: the digest of all of it, and its words in windows that overlap."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=len(_NOTHING))
        self._words: list[str] = []

    def add(self, words: list[str], is_end: bool) -> Iterator[list[str]]:
        """Add the words of a piece; give the window that is full, or the rest at the end."""
        self._hash.update("".join(words).encode())
        self._words += words
        if is_end or len(self._words) >= WINDOW_WORDS:
            yield self._words
            self._words = self._words[-OVERLAP_WORDS:]

    def key(self) -> bytes:
        """The digest of the folded text, as `folding.digest` gives it."""
        return self._hash.digest()
