"""Packed language modelling: the corpus as one stream of framed documents, cut into blocks of one length.

Nothing is padded and nothing is lost but a rest shorter than a block. Each token comes with the number of its
document, so that attention can be kept within it.
"""

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

    @classmethod
    def cut(cls, tokens: np.ndarray, documents: np.ndarray) -> "PackedBatch":
        """From blocks with the token after each."""
        return cls(tokens[:, :-1], tokens[:, 1:], documents[:, :-1])


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
        return PackedBatch.cut(*self.blocks(seed, rows[:, 0], rows[:, 1]))

    def blocks(self, seed: int, epochs: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Blocks of epochs, each with the token after it, and the document of each: (blocks, length + 1) both."""
        offsets = {epoch: self._offset(seed, epoch) for epoch in np.unique(epochs).tolist()}
        shifts = np.array([offsets[epoch] for epoch in epochs.tolist()], np.int64)
        return self.stretches(shifts + numbers * self.length)

    def _offset(self, seed: int, epoch: int) -> int:
        return int(stream(seed, "packed shift", epoch).integers(self.length)) if self.shift else 0

    def stretches(self, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The `length + 1` tokens of the stream from each of these places on, and the document of each."""
        starts, width = starts % self.stream_length, self.length + 1
        documents = np.empty((len(starts), width), np.int64)
        closes = starts + width > self.stream_length  # the circle, within the row
        documents[~closes] = self._documents(starts[~closes], width)
        for row in np.flatnonzero(closes).tolist():
            before = self.stream_length - starts[row]
            documents[row, :before] = self._documents(starts[[row]], before)
            documents[row, before:] = self._documents(np.zeros(1, np.int64), width - before)
        positions = (starts[:, None] + np.arange(width)) % self.stream_length
        # Where the token stands in the store, were it one of the text's.
        places = positions - self.frame.cost * documents - (self.frame.first is not None)
        tokens = self.store.tokens[np.clip(places, 0, len(self.store) - 1)].astype(np.int64)
        if self.frame.first is not None:
            tokens[places < self.store.documents[documents]] = self.frame.first
        if self.frame.last is not None:
            tokens[places >= self.store.documents[documents + 1]] = self.frame.last
        return tokens, documents

    def _documents(self, starts: np.ndarray, width: int) -> np.ndarray:
        """The documents of rows of the stream: that of the first place, and one more wherever another begins."""
        first, last = self._document_at(starts), self._document_at(starts + width - 1)
        counts = last - first
        rows = np.repeat(np.arange(len(starts)), counts)
        begun = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + first[rows] + 1
        columns = self._start_of(begun) - starts[rows]
        steps = np.bincount(rows * width + columns, minlength=len(starts) * width).reshape(len(starts), width)
        return first[:, None] + np.cumsum(steps, axis=1)

    def _document_at(self, positions: np.ndarray) -> np.ndarray:
        """The documents at positions of the stream, by halving: without an index of framed documents."""
        low, high = np.zeros_like(positions), np.full_like(positions, self.store.document_count)
        while (high - low > 1).any():
            middle = (low + high) // 2
            is_before = self._start_of(middle) <= positions
            low, high = np.where(is_before, middle, low), np.where(is_before, high, middle)
        return low

    def _start_of(self, documents: np.ndarray) -> np.ndarray:
        """Where documents begin in the stream."""
        return self.store.documents[documents] + self.frame.cost * documents
