"""The causal objective: the next token, at every place, within its own document."""

from collections.abc import Iterator

import numpy as np

from headstart.model.heads import IGNORED
from headstart.model.model import Model
from headstart.model.presets import HeadConfig
from headstart.objectives.block_reading import read_blocks, with_offsets
from headstart.objectives.objective import Batch, Loss, Tensors
from headstart.text.mixture import MixedBlocks
from headstart.text.packing import PackedBlocks


class Causal:
    """Predict each token of a packed stream from those before it in its document."""

    head = HeadConfig(kind="lm")
    picks_places = (
        False  # nearly every place has a target: to leave the others out would cost more than it saves
    )

    def __init__(self, blocks: PackedBlocks | MixedBlocks, batch: int) -> None:
        """`batch` is the number of blocks in a step."""
        self.blocks, self.batch = blocks, batch

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.blocks.count / self.batch))

    def batch_at(self, seed: int, step: int) -> Batch:
        tokens, targets, documents = self.blocks.examples_at(seed, step, self.batch)
        return self._collated(tokens, targets, documents)

    def _collated(self, tokens: np.ndarray, targets: np.ndarray, documents: np.ndarray) -> Batch:
        # What follows the end of a document is another document: nothing there to predict.
        targets = np.where(tokens == self.blocks.frame.last, IGNORED, targets)
        batch = {"tokens": tokens, "targets": targets}
        return batch if self.blocks.is_one_document else {**batch, "documents": documents}

    def filled(self, batch: Batch) -> Batch:
        """Blocks are of one shape already; their documents begin where they begin."""
        return with_offsets(batch)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        hidden, targets = read_blocks(model, batch), batch["targets"].flatten()
        loss = model.head.loss_at(hidden, targets, wants_right=False)
        return Loss(loss.sum, (batch["targets"] != IGNORED).sum(), {})

    def evaluation(self) -> Iterator[Batch]:
        assert isinstance(self.blocks, PackedBlocks), "what is drawn by weight is not measured by"
        for tokens, documents, present in stream_in_order(self.blocks, self.batch):
            targets = np.where(present[:, 1:], tokens[:, 1:], IGNORED)
            yield self._collated(tokens[:, :-1], targets, documents[:, :-1])


def stream_in_order(blocks: PackedBlocks, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Every block of the stream with the token after it, the incomplete last one too: (blocks, length + 1) each.

    Tokens, their documents, and what is still of the stream: beyond its end it begins again, and does not count.
    """
    starts = np.arange(0, blocks.stream_length - 1, blocks.length)
    for first in range(0, len(starts), batch):
        here = starts[first : first + batch]
        tokens, documents = blocks.stretches(here)
        yield tokens, documents, here[:, None] + np.arange(blocks.length + 1) < blocks.stream_length
