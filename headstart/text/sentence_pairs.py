"""Next-sentence pairs: two stretches of text, and whether the second really follows the first.

Every boundary between two segments of a document is taken once an epoch. Before it stands the first stretch;
the second is, one time in two, what really follows, else what follows a boundary of another document. Both are
as long as there is room, and the longer is cut first, as in BERT: the first loses its beginning and the second
its end, so that what follows still follows.
"""

from typing import NamedTuple

import numpy as np

from headstart.errors import UserError
from headstart.randomness import stream
from headstart.text.frames import Frame, Framed
from headstart.text.order import examples_at, for_rank
from headstart.text.store import TokenStore


class SentencePair(NamedTuple):
    """`cls a sep b sep`, and the truth about b."""

    tokens: np.ndarray
    segments: np.ndarray
    is_next: bool
    documents: tuple[int, int]
    """The documents that a and b are from."""


class SentencePairs:
    """Pairs from the documents of a store that have two segments or more."""

    def __init__(self, store: TokenStore, length: int, frame: Frame) -> None:
        self.store, self.length, self.frame = store, length, frame
        # The number of the first segment of each document, and of one past the last.
        self._first_segments = np.searchsorted(store.segments, store.documents)
        # Inner boundaries before each document: a document of n segments has n - 1.
        self._boundaries = self._first_segments - np.arange(store.document_count + 1)
        self.count = int(self._boundaries[-1])
        """How many pairs make an epoch."""
        if self.count < 1 or store.document_count < 2:
            raise UserError(
                "next-sentence pairs need two documents, and one of them with two segments; "
                f"there are {store.document_count:,} documents with {len(store.segments) - 1:,} segments",
                fix="separate documents by blank lines, a sentence a line, or let lines be split into sentences",
            )

    def examples_at(
        self, seed: int, step: int, batch: int, rank: int = 0, world: int = 1
    ) -> list[SentencePair]:
        """The pairs of a step: a function of (seed, step, place in the batch)."""
        boundaries = examples_at(self.count, seed, "pair order", step, batch)
        numbered = np.stack([np.arange(step * batch, (step + 1) * batch), boundaries], axis=1)
        return [self.pair(seed, int(number), int(b)) for number, b in for_rank(numbered, rank, world)]

    def pair(self, seed: int, number: int, boundary: int) -> SentencePair:
        """The pair at a boundary; its number in the whole training decides what stands second."""
        draws = stream(seed, "next sentence", number)
        a_document = int(np.searchsorted(self._boundaries, boundary, "right")) - 1
        segment = boundary + 1 + a_document
        start, end = self._bounds(a_document)
        middle = int(self.store.segments[segment])
        is_next = bool(draws.integers(2))
        a = self.store.tokens[max(start, middle - self.length) : middle]
        b_document = a_document
        if not is_next:
            b_document, middle, end = self._elsewhere(draws, a_document)
        b = self.store.tokens[middle : min(end, middle + self.length)]
        framed: Framed = self.frame.pair(a, b, self.length, keep_a="tail")
        return SentencePair(framed.tokens, framed.segments, is_next, (a_document, b_document))

    def _bounds(self, document: int) -> tuple[int, int]:
        return int(self.store.documents[document]), int(self.store.documents[document + 1])

    def _elsewhere(self, draws: np.random.Generator, document: int) -> tuple[int, int, int]:
        """Another document, the start of one of its segments, and its end."""
        other = int(draws.integers(self.store.document_count - 1))
        other += other >= document
        segment = int(draws.integers(self._first_segments[other], self._first_segments[other + 1]))
        return other, int(self.store.segments[segment]), self._bounds(other)[1]
