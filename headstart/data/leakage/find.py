"""The leak check: texts that occur twice, in one set or across corpus, train, valid and test.

Two texts are equal when they differ in case, accents, punctuation and white space only; they are near duplicates when
they share most of their runs of words (see `near_duplicates`). The corpus is read in one pass: of it only eight bytes a
document are kept, and a sketch of the first million.
"""

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from headstart.data.leakage.near_duplicates import LEAST_SHINGLES, NEAR, NearDuplicateIndex, shingles_of
from headstart.data.leakage.text_key import digest, folded_words, text_key
from headstart.data.readers.documents import Piece

WINDOW_WORDS = 8_192
OVERLAP_WORDS = 2_048
SKETCHED_DOCUMENTS = 1_000_000
DOCUMENT_SKETCH = 16
_NOTHING = digest("")

Keys = Mapping[str, list[bytes]]
Indexes = Mapping[str, NearDuplicateIndex]


@dataclass(frozen=True)
class Finding:
    """A row, from 0, that occurs elsewhere too."""

    row: int
    other: int  # the row of the other set, or the document of the corpus, from 0
    share: float = 1.0  # of the shorter text, the share that the longer one has


@dataclass
class Leaks:
    """All that was found, by name: `test_in_train`, `near_test_in_train`, `train_repeats`, `test_in_corpus`, …

    A row counts once under a name, with its first equal or its nearest text; a near one is counted only
    where the row has no equal. `…_repeats` are rows that occur earlier in their own set;
    `near_corpus_repeats` is an estimate.
    """

    findings: dict[str, list[Finding]] = field(default_factory=dict)
    corpus_document_count: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many rows were found under each name; nothing found is 0."""
        return {name: len(findings) for name, findings in self.findings.items()}

    @property
    def rows(self) -> dict[str, list[int]]:
        """The row numbers, from 0, under each name."""
        return {name: [finding.row for finding in findings] for name, findings in self.findings.items()}


def find_leaks(sets: Mapping[str, Sequence[str]], corpus: Iterable[Piece] | None = None) -> Leaks:
    """Find texts that occur twice; `sets` is ordered from train to test."""
    leaks = Leaks()
    keys = {name: [digest(text_key(text)) for text in texts] for name, texts in sets.items()}
    indexes = {
        name: NearDuplicateIndex([shingles_of(folded_words(text)) for text in texts]) for name, texts in sets.items()
    }
    for later, earlier in combinations(reversed(list(sets)), 2):
        _compare(leaks, f"{later}_in_{earlier}", later, earlier, keys, indexes)
    for name in sets:
        _compare(leaks, f"{name}_repeats", name, name, keys, indexes)
    if corpus is not None:
        _in_corpus(leaks, keys, indexes, corpus)
    return leaks


def equal_texts(sets: Mapping[str, Sequence[str]]) -> dict[str, list[Finding]]:
    """The rows whose text an earlier set has too, by name such as test_in_train; near duplicates are not looked for."""
    keys = {name: [digest(text_key(text)) for text in texts] for name, texts in sets.items()}
    found = {}
    for later, earlier in combinations(reversed(list(sets)), 2):
        first_row = _first_rows(keys[earlier])
        rows = [Finding(row, first_row[key]) for row, key in enumerate(keys[later]) if key in first_row]
        found[f"{later}_in_{earlier}"] = rows
    return found


def _first_rows(keys: Sequence[bytes]) -> dict[bytes, int]:
    return {key: row for row, key in reversed(list(enumerate(keys)))}


def _compare(leaks: Leaks, name: str, of: str, other: str, keys: Keys, indexes: Indexes) -> None:
    """Rows of one set that the other has too; compared with itself, those that it has earlier."""
    first_row = _first_rows(keys[other])
    equal, near = list[Finding](), list[Finding]()
    for row, (key, shingles) in enumerate(zip(keys[of], indexes[of].shingles, strict=True)):
        below = row if of == other else len(keys[other])
        if (first := first_row.get(key, below)) < below:
            equal.append(Finding(row, first))
            continue
        for candidate in indexes[other].candidates(shingles):
            if candidate < below and (share := indexes[other].share(candidate, shingles)) >= NEAR:
                near.append(Finding(row, candidate, share))
                break
    leaks.findings[name], leaks.findings[f"near_{name}"] = equal, near


def _in_corpus(leaks: Leaks, keys: Keys, indexes: Indexes, corpus: Iterable[Piece]) -> None:
    reader = CorpusReader(
        [(name, row, key) for name in keys for row, key in enumerate(keys[name])],
        NearDuplicateIndex([shingles for name in keys for shingles in indexes[name].shingles]),
    )
    for piece in corpus:
        reader.take(piece)
    leaks.corpus_document_count = reader.document_count
    for name in keys:
        equal = {row: at for (of, row), at in reader.equal.items() if of == name}
        near = {row: at for (of, row), at in reader.near.items() if of == name and row not in equal}
        leaks.findings[f"{name}_in_corpus"] = [Finding(row, equal[row]) for row in sorted(equal)]
        leaks.findings[f"near_{name}_in_corpus"] = [Finding(row, *near[row]) for row in sorted(near)]
    leaks.findings["corpus_repeats"] = [Finding(*pair) for pair in reader.repeats()]
    leaks.findings["near_corpus_repeats"] = [Finding(*repeat) for repeat in reader.near_repeats()]


class CorpusReader:
    """Takes a corpus piece by piece and records which rows occur in it.

    Segments are compared with the rows, and whole documents too where they have several segments; a long one comes
    in windows that overlap.
    """

    def __init__(self, rows: Iterable[tuple[str, int, bytes]], index: NearDuplicateIndex) -> None:
        """`rows` are (name of the set, row, digest of the folded text), in the order of the index."""
        self.document_count = 0
        self.equal: dict[tuple[str, int], int] = {}  # for each row met, the document, from 0
        self.near: dict[tuple[str, int], tuple[int, float]] = {}  # of each row met nearly, the containment too
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

    def repeats(self) -> Iterator[tuple[int, int]]:
        """Documents that occur earlier already, each with the first one."""
        keys = np.frombuffer(self._document_keys, np.uint64)
        _, firsts, kinds = np.unique(keys, return_index=True, return_inverse=True)
        nothing = np.uint64(int.from_bytes(_NOTHING[:8], "little"))
        for document in np.flatnonzero((firsts[kinds] < np.arange(len(keys))) & (keys != nothing)):
            yield int(document), int(firsts[kinds[document]])

    def near_repeats(self) -> Iterator[tuple[int, int, float]]:
        """Documents near one of the last that share a hash of their sketch, by the share of it that both have."""
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
        """The digest of the folded text, as `text_key.digest` gives it."""
        return self._hash.digest()
