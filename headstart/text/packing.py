"""Packed language modelling: the corpus as one stream of framed documents, cut into blocks of one length.

Nothing is padded and nothing is lost but a rest shorter than a block. Each token comes with the number of its
document, so that attention can be kept within it.
"""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headstart.errors import UserError
from headstart.randomness import stream
from headstart.text.frames import Frame
from headstart.text.order import examples_at, for_rank, places_at
from headstart.text.store import TokenStore


class PackedBatch(NamedTuple):
    """Blocks of the stream: (examples, length) each."""

    tokens: np.ndarray
    targets: np.ndarray
    """The token that follows each."""

    documents: np.ndarray
    """The number of the document that each token is of."""


class PackedBlocks:
    """The stream `first text last first text last …` in blocks of `length` tokens and the token after each."""

    def __init__(self, store: TokenStore, length: int, frame: Frame, *, shift: bool = False) -> None:
        """With `shift` the cuts fall elsewhere in each epoch; the stream is then taken as a circle."""
        self.store, self.length, self.frame, self.shift = store, length, frame, shift
        self.stream_length = len(store) + frame.cost * store.document_count
        self.count = (self.stream_length - 1) // length
        """How many blocks make an epoch."""
        self.is_one_document = store.document_count == 1
        if self.count < 1:
            raise UserError(
                f"one block of {length:,} tokens needs {length + 1:,} tokens with their targets, "
                f"and {self.stream_length:,} came ({len(store):,} of text and the frames of its documents)",
                fix=f"give more text, or --length {max(1, self.stream_length - 1)} at most",
            )

    def examples_at(self, seed: int, step: int, batch: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """The blocks of a step: each exactly once an epoch, in an order that depends on (seed, epoch) only."""
        epochs, _ = places_at(step, batch, self.count)
        blocks = examples_at(self.count, seed, "packed order", step, batch)
        rows = for_rank(np.stack([epochs, blocks], axis=1), rank, world)
        return stacked([self.block(seed, epoch, number) for epoch, number in rows.tolist()], self.length)

    def block(self, seed: int, epoch: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """A block of an epoch with the token after it, and the document of each."""
        return self.stretch(self._offset(seed, epoch) + number * self.length)

    def _offset(self, seed: int, epoch: int) -> int:
        return int(stream(seed, "packed shift", epoch).integers(self.length)) if self.shift else 0

    def stretch(self, start: int) -> tuple[np.ndarray, np.ndarray]:
        """The `length + 1` tokens of the stream from a place on, and the document of each."""
        positions = (start + np.arange(self.length + 1)) % self.stream_length
        turn = int(np.argmin(positions))  # where the circle closes, if it does
        parts = [self._part(part) for part in (positions[:turn], positions[turn:]) if len(part)]
        tokens, documents = zip(*parts, strict=True)
        return np.concatenate(tokens), np.concatenate(documents)

    def _part(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and documents at rising positions of the stream."""
        first, last = (self._document_at(int(position)) for position in positions[[0, -1]])
        numbers = np.arange(first, last + 1)
        starts = self.store.documents[first : last + 1]
        documents = first + np.searchsorted(starts + self.frame.cost * numbers, positions, "right") - 1
        # Where the token stands in the store, were it one of the text's.
        places = positions - self.frame.cost * documents - (self.frame.first is not None)
        tokens = self.store.tokens[np.clip(places, 0, len(self.store) - 1)].astype(np.int64)
        if self.frame.first is not None:
            tokens[places < self.store.documents[documents]] = self.frame.first
        if self.frame.last is not None:
            tokens[places >= self.store.documents[documents + 1]] = self.frame.last
        return tokens, documents

    def _document_at(self, position: int) -> int:
        """The document at a position of the stream, found without an index of framed documents."""
        starts = self.store.documents
        numbers = range(self.store.document_count)
        return bisect.bisect_right(numbers, position, key=lambda d: int(starts[d]) + self.frame.cost * d) - 1


def stacked(blocks: Sequence[tuple[np.ndarray, np.ndarray]], length: int) -> PackedBatch:
    """Blocks, each with the token after it and the document of each, as a batch; there may be none."""
    both = np.array(blocks, np.int64).reshape(len(blocks), 2, length + 1)
    return PackedBatch(both[:, 0, :-1], both[:, 0, 1:], both[:, 1, :-1])
