"""The leak check: which texts stand twice, in one set or across corpus, train, valid and test.

Two texts are the same when they are equal after folding case, accents, punctuation and white space; they are
near when most of their runs of words are shared (see `near`). The corpus is a stream (see `corpus_leaks`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from headstart.text.corpus_leaks import CorpusReader
from headstart.text.documents import Piece
from headstart.text.folding import digest, fold_key, folded_words
from headstart.text.near import NEAR, NearIndex, Shingles, shingles_of


@dataclass(frozen=True)
class Finding:
    """A row, from 0, that stands elsewhere too."""

    row: int
    other: int
    """The row of the other set, or the document of the corpus, from 0."""

    share: float = 1.0
    """Of the shorter text, the share that the longer one has."""


@dataclass
class Leaks:
    """All that was found, by name: `test_in_train`, `near_test_in_train`, `train_repeats`, `test_in_corpus`, …

    A row counts once under a name, with the first place or the nearest text found; a near one is counted only
    where the row has no equal. `…_repeats` are rows that stand earlier in their own set already;
    `near_corpus_repeats` is an estimate.
    """

    findings: dict[str, list[Finding]] = field(default_factory=dict)
    corpus_document_count: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many rows were found under each name; nothing found is 0."""
        return {name: len(found) for name, found in self.findings.items()}

    @property
    def rows(self) -> dict[str, list[int]]:
        """The row numbers, from 0, under each name."""
        return {name: [finding.row for finding in found] for name, found in self.findings.items()}


def find_leaks(sets: Mapping[str, Sequence[str]], corpus: Iterable[Piece] | None = None) -> Leaks:
    """Look for texts that stand twice; `sets` goes from what is learned from to what is measured on."""
    leaks = Leaks()
    keys = {name: [digest(fold_key(text)) for text in texts] for name, texts in sets.items()}
    indexes = {
        name: NearIndex([shingles_of(folded_words(text)) for text in texts]) for name, texts in sets.items()
    }
    for later, earlier in combinations(reversed(list(sets)), 2):
        _across(leaks, f"{later}_in_{earlier}", keys[later], keys[earlier], indexes[later], indexes[earlier])
    for name in sets:
        _within(leaks, f"{name}_repeats", keys[name], indexes[name])
    if corpus is not None:
        _in_corpus(leaks, keys, indexes, corpus)
    return leaks


def _in_corpus(
    leaks: Leaks, keys: Mapping[str, list[bytes]], indexes: Mapping[str, NearIndex], corpus: Iterable[Piece]
) -> None:
    reader = CorpusReader(
        [(name, row, key) for name in keys for row, key in enumerate(keys[name])],
        NearIndex([shingles for name in keys for shingles in indexes[name].shingles]),
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
    leaks.findings["near_corpus_repeats"] = [Finding(*found) for found in reader.near_repeats()]


def _across(
    leaks: Leaks,
    name: str,
    keys: list[bytes],
    other_keys: list[bytes],
    index: NearIndex,
    other_index: NearIndex,
) -> None:
    first_row = {key: row for row, key in reversed(list(enumerate(other_keys)))}
    equal = [Finding(row, first_row[key]) for row, key in enumerate(keys) if key in first_row]
    near = []
    for row, shingles in enumerate(index.shingles):
        if keys[row] not in first_row:
            near += _first_near(row, shingles, other_index, len(other_keys))
    leaks.findings[name], leaks.findings[f"near_{name}"] = equal, near


def _within(leaks: Leaks, name: str, keys: list[bytes], index: NearIndex) -> None:
    first_row: dict[bytes, int] = {}
    equal, near = [], []
    for row, shingles in enumerate(index.shingles):
        if keys[row] in first_row:
            equal.append(Finding(row, first_row[keys[row]]))
        else:
            first_row[keys[row]] = row
            near += _first_near(row, shingles, index, row)
    leaks.findings[name], leaks.findings[f"near_{name}"] = equal, near


def _first_near(row: int, shingles: Shingles, index: NearIndex, below: int) -> list[Finding]:
    for candidate in index.candidates(shingles):
        if candidate < below and (share := index.share(candidate, shingles)) >= NEAR:
            return [Finding(row, candidate, share)]
    return []
