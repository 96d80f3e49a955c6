"""Packed language modelling: the corpus as one stream of framed documents, cut into blocks of one length.

Nothing is padded; only a rest shorter than a block is dropped. Each token has the number of its document, so that
attention can stay within it. Files of one weight are one source; a block never spans two sources.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headstart.data.sampler import examples_at, mixed_at, mixed_count, positions_at
from headstart.data.token_store import TokenStore
from headstart.errors import UserError
from headstart.randomness import stream
from headstart.tokenizers.templates import Template


class PackedBatch(NamedTuple):
    """Blocks of the stream: (examples, length) each."""

    tokens: np.ndarray
    targets: np.ndarray  # the token that follows each
    documents: np.ndarray  # the number of the document that each token is of

    @classmethod
    def cut(cls, tokens: np.ndarray, documents: np.ndarray) -> "PackedBatch":
        """From blocks with the token after each."""
        return cls(tokens[:, :-1], tokens[:, 1:], documents[:, :-1])


class PackedBlocks:
    """The stream `first text last first text last …` in blocks of `length` tokens and the token after each."""

    def __init__(self, store: TokenStore, length: int, frame: Template, *, shift: bool = False) -> None:
        """With `shift` the cuts fall elsewhere in each epoch; the stream is then taken as a circle."""
        self.store, self.length, self.frame, self.shift = store, length, frame, shift
        self.stream_length = len(store) + frame.cost * store.document_count
        self.count = (self.stream_length - 1) // length  # how many blocks make an epoch
        self.is_one_document = store.document_count == 1
        if self.count < 1:
            raise UserError(
                f"one block of {length:,} tokens needs {length + 1:,} tokens with their targets, "
                f"and {self.stream_length:,} came ({len(store):,} of text and the frames of its documents)",
                fix=f"give more text, or --length {max(1, self.stream_length - 1)} at most",
                code="too-few",
            )

    def examples_at(self, seed: int, step: int, batch: int) -> PackedBatch:
        """The blocks of a step: each exactly once an epoch, in an order that depends on (seed, epoch) only."""
        epochs, _ = positions_at(step, batch, self.count)
        blocks = examples_at(self.count, seed, "packed order", step, batch)
        return PackedBatch.cut(*self.blocks(seed, epochs, blocks))

    def blocks(self, seed: int, epochs: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Blocks of epochs, each with the token after it, and the document of each: (blocks, length + 1) both."""
        shifts = np.zeros_like(epochs)
        for epoch in np.unique(epochs).tolist() if self.shift else ():
            shifts[epochs == epoch] = stream(seed, "packed shift", epoch).integers(self.length)
        return self.stretches(shifts + numbers * self.length)

    def stretches(self, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The `length + 1` tokens of the stream from each of these positions on, and the document of each."""
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
        offsets = positions - self.frame.cost * documents - (self.frame.first is not None)
        tokens = self.store.tokens[np.clip(offsets, 0, len(self.store) - 1)].astype(np.int64)
        if self.frame.first is not None:
            tokens[offsets < self.store.documents[documents]] = self.frame.first
        if self.frame.last is not None:
            tokens[offsets >= self.store.documents[documents + 1]] = self.frame.last
        return tokens, documents

    def _documents(self, starts: np.ndarray, width: int) -> np.ndarray:
        """The documents of rows of the stream: that of the first position, and one more where another begins."""
        first, last = self._document_at(starts), self._document_at(starts + width - 1)
        counts = last - first
        rows = np.repeat(np.arange(len(starts)), counts)
        documents = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + first[rows] + 1
        columns = self._start_of(documents) - starts[rows]
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


class MixedBlocks:
    """Blocks of several sources, each as often as it weighs: a function of (seed, step)."""

    def __init__(self, sources: Sequence[PackedBlocks], weights: Sequence[float]) -> None:
        self.sources, self.weights = sources, weights
        self.counts = [source.count for source in sources]
        self.frame, self.length = sources[0].frame, sources[0].length
        self.is_one_document = all(source.is_one_document for source in sources)
        self.count = mixed_count(self.counts, weights)  # blocks in an epoch

    def examples_at(self, seed: int, step: int, batch: int) -> PackedBatch:
        drawn = mixed_at(self.counts, self.weights, seed, "packed order", step, batch)
        tokens, documents = np.empty((2, len(drawn), self.length + 1), np.int64)
        for number, source in enumerate(self.sources):
            here = drawn[:, 0] == number
            tokens[here], documents[here] = source.blocks(seed, drawn[here, 1], drawn[here, 2])
        return PackedBatch.cut(tokens, documents)
