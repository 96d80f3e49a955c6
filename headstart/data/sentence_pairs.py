"""Next-sentence pairs: two stretches of text, and whether the second really follows the first.

Every boundary between two segments of a document is taken once an epoch. Before it stands the first stretch;
the second is, one time in two, what really follows, else what follows a boundary of another document. Both are
as long as there is room, and the longer is cut first, as in BERT: the first loses its beginning and the second
its end, so that what follows still follows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headstart.data.sampler import examples_at, mixed_at, mixed_count
from headstart.data.token_store import TokenStore
from headstart.errors import UserError
from headstart.randomness import stream
from headstart.tokenizers.templates import Template


class SentencePair(NamedTuple):
    """`cls a sep b sep`, and the truth about b."""

    tokens: np.ndarray
    segments: np.ndarray
    is_next: bool


class SentencePairs:
    """Pairs from the documents of a store that have two segments or more."""

    def __init__(self, store: TokenStore, length: int, frame: Template) -> None:
        self.store, self.length, self.frame = store, length, frame
        # The number of the first segment of each document, and of one past the last.
        self._first_segments = np.searchsorted(store.segments, store.documents)
        # Inner boundaries before each document: a document of n segments has n - 1.
        self._boundaries = self._first_segments - np.arange(store.document_count + 1)
        self.count = int(self._boundaries[-1])  # how many pairs make an epoch
        if self.count < 1 or store.document_count < 2:
            raise UserError(
                "next-sentence pairs need two documents, and one of them with two segments; "
                f"there are {store.document_count:,} documents with {len(store.segments) - 1:,} segments",
                fix="separate documents by blank lines, a sentence a line, or let lines be split into sentences",
                code="too-few",
            )

    def examples_at(self, seed: int, step: int, batch: int) -> list[SentencePair]:
        """The pairs of a step: a function of (seed, step, position in the batch)."""
        boundaries = examples_at(self.count, seed, "pair order", step, batch)
        return [self.pair(seed, number, boundary) for number, boundary in enumerate(boundaries.tolist(), step * batch)]

    def pair(self, seed: int, number: int, boundary: int) -> SentencePair:
        """The pair at a boundary; its number in the whole training decides what stands second."""
        draws = stream(seed, "next sentence", number)
        document = int(np.searchsorted(self._boundaries, boundary, "right")) - 1
        start, end = self._bounds(document)
        middle = int(self.store.segments[boundary + 1 + document])
        is_next = bool(draws.integers(2))
        a = self.store.tokens[max(start, middle - self.length) : middle]
        if not is_next:
            middle, end = self._elsewhere(draws, document)
        b = self.store.tokens[middle : min(end, middle + self.length)]
        framed = self.frame.pair(a, b, self.length, keep_a="tail")
        return SentencePair(framed.tokens, framed.segments, is_next)

    def _bounds(self, document: int) -> tuple[int, int]:
        return int(self.store.documents[document]), int(self.store.documents[document + 1])

    def _elsewhere(self, draws: np.random.Generator, document: int) -> tuple[int, int]:
        """The start of a segment of another document, and that document's end."""
        other = int(draws.integers(self.store.document_count - 1))
        other += other >= document
        segment = int(draws.integers(self._first_segments[other], self._first_segments[other + 1]))
        return int(self.store.segments[segment]), self._bounds(other)[1]


class MixedPairs:
    """Pairs of sentences of several sources, each as often as it weighs; both sentences are of one source."""

    def __init__(self, sources: Sequence[SentencePairs], weights: Sequence[float]) -> None:
        self.sources, self.weights = sources, weights
        self.counts = [source.count for source in sources]
        self.count = mixed_count(self.counts, weights)  # pairs in an epoch

    def examples_at(self, seed: int, step: int, batch: int) -> list[SentencePair]:
        """The pairs of a step; one that comes again may be followed by something else."""
        drawn = mixed_at(self.counts, self.weights, seed, "pair order", step, batch)
        return [
            self.sources[source].pair(seed, number, boundary)
            for number, (source, _, boundary) in enumerate(drawn.tolist(), step * batch)
        ]
