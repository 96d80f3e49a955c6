"""Near duplicates: texts that share most of their runs of words.

The measure is the containment of Broder (1997): of the distinct runs of SHINGLE_WORDS words in the shorter text, the
share that the longer one has too. It is computed exactly; a sketch only selects the texts to compare. A sketch is the
SKETCH smallest hashed runs of a text, a fair sample of them: two texts are compared where half of NEAR of a sketch is
found. (So at a containment of exactly NEAR three texts in ten thousand are missed, at 0.8 less than one in 10⁹.)

Common phrases are not copies: a text of fewer than LEAST_SHINGLES runs is found by equality only, and one of fewer
than ALONE_SHINGLES is not searched in texts more than twice as long. The values were chosen on French and English
reviews, sentences and news, where what passes them was rewritten, posted again or made from a template.
"""

import zlib
from collections.abc import Sequence

import numpy as np

SHINGLE_WORDS = 3
LEAST_SHINGLES = 10
ALONE_SHINGLES = 25
NEAR = 0.6
SKETCH = 32
POSTINGS = 1000  # texts looked at for one run of words: the first so many, where a thousand texts follow one template

Shingles = np.ndarray
_ODD = np.uint64(0x9E3779B97F4A7C15)


def shingles_of(words: Sequence[str]) -> Shingles:
    """The distinct runs of these words, hashed, in ascending order."""
    if len(words) < SHINGLE_WORDS:
        return np.empty(0, np.uint64)
    hashed = np.array([zlib.crc32(word.encode()) for word in words], np.uint64)
    runs = np.zeros(len(words) - SHINGLE_WORDS + 1, np.uint64)
    for offset in range(SHINGLE_WORDS):
        runs = (runs + hashed[offset : offset + len(runs)]) * _ODD
        runs ^= runs >> np.uint64(29)  # mix the high bits down, so that the smallest are a fair sample
    return np.unique(runs)


def containment(one: Shingles, other: Shingles) -> float:
    """The share of the smaller set that the larger one has too; 0 where one is too short to compare."""
    smaller, larger = sorted((one, other), key=len)
    if len(smaller) < LEAST_SHINGLES or (len(smaller) < ALONE_SHINGLES and len(larger) > 2 * len(smaller)):
        return 0.0
    indexes = np.searchsorted(larger, smaller)  # four times as fast as intersect1d
    indexes[indexes == len(larger)] = 0
    return float((larger[indexes] == smaller).mean())


class NearDuplicateIndex:
    """An index of texts by their shingles, to find those that are near another text."""

    def __init__(self, shingles: list[Shingles]) -> None:
        self.shingles = shingles
        sketches = [s[:SKETCH] if len(s) >= LEAST_SHINGLES else s[:0] for s in self.shingles]
        self._sketch_sizes = np.array([max(1, len(sketch)) for sketch in sketches])
        self._sketches = _Postings(sketches)
        self._all = _Postings(self.shingles)

    def candidates(self, asked: Shingles) -> list[int]:
        """The texts that have a good part of the asked one's sketch, or the reverse, most promising first."""
        if len(asked) < LEAST_SHINGLES or not self.shingles:
            return []
        inside = self._sketches.hits(asked) / self._sketch_sizes
        around = self._all.hits(asked[:SKETCH]) / min(SKETCH, len(asked))
        score = np.maximum(inside, around)
        rows = np.flatnonzero(score >= NEAR / 2)
        return [int(row) for row in rows[np.argsort(-score[rows], kind="stable")]]

    def share(self, row: int, asked: Shingles) -> float:
        """The containment of a text of this set and the asked one."""
        return containment(self.shingles[row], asked)


class _Postings:
    """For each hash the texts that have it."""

    def __init__(self, sets: list[Shingles]) -> None:
        self.text_count = len(sets)
        hashes = np.concatenate([np.empty(0, np.uint64), *sets])
        rows = np.repeat(np.arange(len(sets), dtype=np.int32), [len(s) for s in sets])
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._starts, counts = np.unique(hashes[order], return_index=True, return_counts=True)
        self._rows = rows[order]
        self._counts = np.minimum(counts, POSTINGS)

    def hits(self, asked: Shingles) -> np.ndarray:
        """How many of the asked hashes each text has."""
        indexes = np.searchsorted(self._hashes, asked)
        indexes[indexes == len(self._hashes)] = 0
        known = indexes[self._hashes[indexes] == asked] if len(self._hashes) else indexes[:0]
        if not len(known):
            return np.zeros(self.text_count, np.int64)
        starts, counts = self._starts[known], self._counts[known]
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.bincount(self._rows[np.repeat(starts, counts) + steps], minlength=self.text_count)
