"""The masked objective: some tokens are hidden, and the model says what they were."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from headstart.errors import UserError
from headstart.model.heads import IGNORED
from headstart.model.model import Model
from headstart.model.presets import HeadConfig
from headstart.objectives.block_reading import read_blocks, with_offsets
from headstart.objectives.causal import stream_in_order
from headstart.objectives.objective import Batch, Loss, Tensors
from headstart.objectives.places import picked
from headstart.randomness import stream
from headstart.text.mixture import MixedBlocks
from headstart.text.packing import PackedBlocks
from headstart.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """What is hidden, and how: BERT's shares by default."""

    share: float = 0.15
    """Share of the tokens that are to be guessed."""

    masked: float = 0.8
    """Share of those that become the mask token."""

    random: float = 0.1
    """Share of those that become another token; the rest stay as they are."""

    whole_words: bool = False
    """Hide all tokens of a word, or none."""

    @classmethod
    def of(cls, share: float, random: float, kept: float, whole_words: bool) -> "Corruption":
        """With the shares of the hidden tokens that become another one and that stay; the rest become the mask."""
        return cls(share=share, masked=round(1 - random - kept, 9), random=random, whole_words=whole_words)

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UserError(
                f"a share of {self.share} to mask", fix="give a number between 0 and 1, such as 0.15"
            )
        if min(self.masked, self.random) < 0 or self.masked + self.random > 1:
            raise UserError(
                f"{self.masked} masked and {self.random} random of what is hidden",
                fix="give shares from 0 to 1, together at most 1",
            )


class Corruptor:
    """Hides tokens by a tokenizer's mask, never special ones."""

    def __init__(self, tokenizer: Tokenizer, corruption: Corruption) -> None:
        self.corruption, self.mask_id = corruption, tokenizer.id_of("mask")
        self._is_special = np.zeros(tokenizer.size, bool)
        self._is_special[sorted(tokenizer.special_ids)] = True
        self._plain = np.flatnonzero(~self._is_special)
        self._starts_word = tokenizer.word_starts

    def __call__(self, tokens: np.ndarray, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The tokens as the model sees them, and the targets: the hidden ones, elsewhere IGNORED."""
        chosen = self._chosen(tokens, draws)
        fate = draws.random(tokens.shape)
        others = self._plain[draws.integers(len(self._plain), size=tokens.shape)]
        shares = self.corruption
        seen = np.where(chosen & (fate < shares.masked), self.mask_id, tokens)
        becomes_other = chosen & (fate >= shares.masked) & (fate < shares.masked + shares.random)
        return np.where(becomes_other, others, seen), np.where(chosen, tokens, IGNORED)

    def _chosen(self, tokens: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        """Exactly the share of each row's plain tokens (one at least): the likeliest by chance, or by word."""
        allowed = ~self._is_special[tokens]
        chance = draws.random(tokens.shape)
        if self.corruption.whole_words:
            chance = chance[np.arange(len(tokens))[:, None], self._word_of(tokens)]
        # Tokens of one word have one chance and stand together in the order, in their order.
        ranks = np.empty(tokens.shape, np.int64)
        order = np.argsort(np.where(allowed, chance, 2.0), axis=1, kind="stable")
        np.put_along_axis(ranks, order, np.arange(tokens.shape[1])[None], axis=1)
        plain_count = allowed.sum(axis=1, keepdims=True)
        wanted = np.maximum(1, np.round(self.corruption.share * plain_count)).astype(np.int64)
        chosen = allowed & (ranks < wanted)
        if not self.corruption.whole_words:
            return chosen
        # A word that was cut by the count is hidden whole.
        touched = np.zeros(tokens.shape, bool)
        words = self._word_of(tokens)
        rows = np.nonzero(chosen)[0]
        touched[rows, words[chosen]] = True
        return allowed & touched[np.arange(len(tokens))[:, None], words]

    def _word_of(self, tokens: np.ndarray) -> np.ndarray:
        """For each token the place in its row where its word starts."""
        places = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
        starts = self._starts_word[tokens].copy()
        starts[:, 0] = True
        # After a special token a word begins, whatever the token says.
        starts[:, 1:] |= self._is_special[tokens[:, :-1]]
        return np.maximum.accumulate(np.where(starts, places, 0), axis=1)


class Masked:
    """Guess the hidden tokens of a packed stream from both sides; the head works at the hidden places alone."""

    head = HeadConfig(kind="masked")

    def __init__(self, blocks: PackedBlocks | MixedBlocks, batch: int, corruptor: Corruptor) -> None:
        """`batch` is the number of blocks in a step."""
        self.blocks, self.batch, self.corruptor = blocks, batch, corruptor

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.blocks.count / self.batch))

    def batch_at(self, seed: int, step: int) -> Batch:
        tokens, _, documents = self.blocks.examples_at(seed, step, self.batch)
        return self._collated(tokens, documents, stream(seed, "mask", step))

    def _collated(self, tokens: np.ndarray, documents: np.ndarray, draws: np.random.Generator) -> Batch:
        seen, targets = self.corruptor(tokens, draws)
        batch = {"tokens": seen, "targets": targets}
        return batch if self.blocks.is_one_document else {**batch, "documents": documents}

    def filled(self, batch: Batch) -> Batch:
        """Blocks are of one shape already; their documents begin where they begin."""
        return with_offsets(batch)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        return masked_loss(model, read_blocks(model, batch), batch)

    def evaluation(self) -> Iterator[Batch]:
        assert isinstance(self.blocks, PackedBlocks), "what is drawn by weight is not measured by"
        for number, (tokens, documents, present) in enumerate(stream_in_order(self.blocks, self.batch)):
            draws = stream(0, "mask for evaluation", number)
            batch = self._collated(tokens[:, :-1], documents[:, :-1], draws)
            yield {**batch, "targets": np.where(present[:, :-1], batch["targets"], IGNORED)}


def masked_loss(model: Model, hidden: Tensor, batch: Tensors) -> Loss:
    """Cross-entropy and accuracy at the hidden places, the only ones that the head computes."""
    loss, count = (
        model.head.loss_at(picked(hidden, batch), batch["wanted"]),
        (batch["wanted"] != IGNORED).sum(),
    )
    return Loss(loss.sum, count, {"masked_accuracy": (loss.right, count)})
