"""The translation objective: each token of the target, from the source and from the target's true tokens before it."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from headstart.errors import UserError
from headstart.model.heads import IGNORED
from headstart.model.model import Model
from headstart.model.presets import HeadConfig
from headstart.objectives.few_shapes import filled_up
from headstart.objectives.objective import Batch, Loss, Tensors
from headstart.objectives.places import picked
from headstart.objectives.twice import doubled, token_disagreement
from headstart.text.buckets import LengthBuckets, rounded_up
from headstart.text.frames import Frame, Framed, truncated_share
from headstart.text.tokenizer import Tokenizer


def framed_side(texts: Sequence[str], tokenizer: Tokenizer, frame: Frame, length: int) -> list[Framed]:
    """The texts of one side of the pairs, as the model reads or writes them, cut to the length."""
    return [frame.one(ids, length) for ids in tokenizer.encode_many(texts)]


class Ragged:
    """Sequences of any length in one array, so that a batch of them is padded without a loop."""

    def __init__(self, sequences: Sequence[np.ndarray]) -> None:
        self.lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        self._flat = np.concatenate(sequences).astype(np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths

    def padded(self, rows: np.ndarray, padding: int) -> tuple[np.ndarray, np.ndarray]:
        """These sequences as one array, and what of it is not padding."""
        places = np.arange(self.lengths[rows].max())
        present = places < self.lengths[rows, None]
        index = np.where(present, self._starts[rows, None] + places, 0)
        return np.where(present, self._flat[index], padding), present


class Translation:
    """Teacher forcing with smoothed labels, over pairs in batches of like length."""

    head = HeadConfig(kind="translation")

    def __init__(
        self,
        sources: Sequence[Framed],
        targets: Sequence[Framed],
        batch_tokens: int,
        pad_id: int,
        target_pad_id: int,
        smoothing: float = 0.0,
        multiple: int = 1,
        r_drop: float = 0.0,
    ) -> None:
        """`batch_tokens` counts source, target and padding; `smoothing` is the share given to all tokens alike.

        With a multiple, lengths are counted up to it, and batches can be filled up to a few shapes. With `r_drop` a
        pair is read twice in training, and what the two readings disagree in is added to the loss so many times.
        """
        if not 0 <= smoothing < 1:
            raise UserError(f"smoothing is {smoothing}", fix="give a share from 0 to under 1, such as 0.1")
        self.sources = Ragged([example.tokens for example in sources])
        self.targets = Ragged([example.tokens for example in targets])
        self.pad_id, self.target_pad_id, self.smoothing = pad_id, target_pad_id, smoothing
        self.r_drop = r_drop
        self.truncated_share = truncated_share(
            [a if a.is_truncated else b for a, b in zip(sources, targets, strict=True)]
        )
        lengths = np.stack([self.sources.lengths, self.targets.lengths - 1], axis=1)
        self.batch_tokens, self.multiple = batch_tokens, multiple
        self.buckets = LengthBuckets(lengths, batch_tokens=batch_tokens, multiple=multiple)
        self._measured = LengthBuckets(lengths, batch_tokens=batch_tokens, window_batches=len(lengths))

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.buckets.batch_count(seed, 0)))

    def batch_at(self, seed: int, step: int) -> Batch:
        return self.collated(self.buckets.examples_at(seed, step))

    def collated(self, rows: np.ndarray) -> Batch:
        """These pairs as a batch: the target without its last token goes in, without its first it comes out."""
        tokens, present = self.sources.padded(rows, self.pad_id)
        written, is_written = self.targets.padded(rows, self.target_pad_id)
        return {
            "tokens": tokens, "present": present, "written": written[:, :-1],
            "targets": np.where(is_written, written, IGNORED)[:, 1:], "rows": rows,
        }  # fmt: skip

    def filled(self, batch: Batch) -> Batch:
        """In as many rows as the tokens allow for its rounded lengths."""
        sides = np.array([batch["tokens"].shape[1], batch["written"].shape[1]])
        rows = self.batch_tokens // int(rounded_up(sides, self.multiple).sum())
        fillers = {"tokens": self.pad_id, "present": False, "written": self.target_pad_id, "targets": IGNORED}
        return filled_up(batch, fillers, rows, self.multiple)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        """The smoothed loss, which is what is trained by; where a model is measured, the plain one is logged too."""
        if self.r_drop and model.training:
            return self._read_twice(model, batch)
        hidden = picked(self._hidden(model, batch), batch)
        targets, count = batch["wanted"], (batch["wanted"] != IGNORED).sum()
        smoothed = model.head.loss_at(hidden, targets, self.smoothing, wants_right=False)
        if model.training:
            return Loss(smoothed.sum, count, {})
        plain = model.head.loss_at(hidden, targets)
        return Loss(
            smoothed.sum, count, {"cross_entropy": (plain.sum, count), "accuracy": (plain.right, count)}
        )

    def _hidden(self, model: Model, batch: Tensors) -> torch.Tensor:
        # Padding comes after the target, where none of its places looks, and has no target of its own: no mask.
        return model.base(batch["tokens"], batch["written"], source_present=batch["present"])

    def _read_twice(self, model: Model, batch: Tensors) -> Loss:
        hidden = self._hidden(model, doubled(batch, ("tokens", "written", "present")))
        first, second = (picked(half, batch) for half in hidden.chunk(2))
        wanted, counts = batch["wanted"], batch["wanted"] != IGNORED
        both = torch.cat([first, second]), torch.cat([wanted, wanted])
        smoothed = model.head.loss_at(*both, self.smoothing, wants_right=False)
        vocab = model.config.output_vocab
        apart = token_disagreement(model.head.output, first, second, counts, vocab)
        return Loss(smoothed.sum / 2 + self.r_drop * apart, counts.sum(), {})

    def evaluation(self) -> Iterator[Batch]:
        """Every pair once, in batches of like length that never change."""
        for rows in self._measured.plan(0, 0):
            yield self.collated(rows)
