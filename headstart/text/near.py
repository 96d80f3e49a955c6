"""Near duplicates: texts that share most of their runs of words.

The measure is the containment of Broder (1997): of the distinct runs of SHINGLE_WORDS folded words in the
shorter text, the share that the longer one has too. A changed word, a cut end or an added beginning lowers it
a little, where equality is lost. It is computed exactly; a sketch only says which texts to compare. A sketch is
the SKETCH smallest of the hashed runs of a text, a fair sample of them: of a text contained in another to a
share of NEAR, that share of the sketch is found there on average, and half of it is enough to compare the two.
(So at a containment of exactly NEAR three texts in ten thousand are overlooked, at 0.8 less than one in 10⁹.)

Common phrases are not copies: a text of fewer than LEAST_SHINGLES runs is found by equality only, and one of
fewer than ALONE_SHINGLES is not looked for inside texts more than twice as long. The values were chosen on
French and English reviews, sentences and news: what passes them there was rewritten, posted again or made from
a template.
"""

import zlib
from collections.abc import Sequence

import numpy as np

SHINGLE_WORDS = 3
LEAST_SHINGLES = 10
ALONE_SHINGLES = 25
NEAR = 0.6
SKETCH = 32
POSTINGS = 1000
"""Texts looked at for one run of words: the first so many, where a thousand texts follow one template."""

Shingles = np.ndarray
_ODD = np.uint64(0x9E3779B97F4A7C15)


def shingles_of(words: Sequence[str]) -> Shingles:
    """The distinct runs of these words, hashed, in ascending order."""
    if len(words) < SHINGLE_WORDS:
        return np.empty(0, np.uint64)
    hashed = np.array([zlib.crc32(word.encode()) for word in words], np.uint64)
    runs = np.zeros(len(words) - SHINGLE_WORDS + 1, np.uint64)
    for place in range(SHINGLE_WORDS):
        runs = (runs + hashed[place : place + len(runs)]) * _ODD
        runs ^= runs >> np.uint64(29)  # mix the high bits down, so that the smallest are a fair sample
    return np.unique(runs)


def containment(one: Shingles, other: Shingles) -> float:
    """The share of the smaller set that the larger one has too; 0 where one is too short to tell."""
    smaller, larger = sorted((one, other), key=len)
    if len(smaller) < LEAST_SHINGLES or (len(smaller) < ALONE_SHINGLES and len(larger) > 2 * len(smaller)):
        return 0.0
    places = np.searchsorted(larger, smaller)
    places[places == len(larger)] = 0
    return float((larger[places] == smaller).mean())


class NearIndex:
    """A set of texts, as their shingles, to be asked which of them are near another text."""

    def __init__(self, shingles: list[Shingles]) -> None:
        self.shingles = shingles
        sketches = [s[:SKETCH] if len(s) >= LEAST_SHINGLES else s[:0] for s in self.shingles]
        self._sketch_sizes = np.array([max(1, len(sketch)) for sketch in sketches])
        self._sketches = _Postings(sketches)
        self._all = _Postings(self.shingles)

    def candidates(self, asked: Shingles) -> list[int]:
        """The texts to compare with the asked one, most promising first.

        A text that has a good part of the asked one's sketch, or of whose sketch the asked one has a good part.
        """
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
        places = np.searchsorted(self._hashes, asked)
        places[places == len(self._hashes)] = 0
        found = places[self._hashes[places] == asked] if len(self._hashes) else places[:0]
        if not len(found):
            return np.zeros(self.text_count, np.int64)
        starts, counts = self._starts[found], self._counts[found]
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.bincount(self._rows[np.repeat(starts, counts) + steps], minlength=self.text_count)
