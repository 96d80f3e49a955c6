"""The translation objective: each token of the target, from the source and from the target's true tokens before it."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from headstart.config.model import HeadConfig
from headstart.config.run import FrameName
from headstart.data.labelled import PairedSet
from headstart.data.sampler import LengthBuckets, rounded_up
from headstart.model.heads import IGNORED
from headstart.model.model import Model
from headstart.objectives.batches import Batch, Tensors, pad_batch, select_positions
from headstart.objectives.objective import Loss, Objective, repeat_batch, token_symmetric_kl
from headstart.tokenizers.templates import Framed, Template, target_template_of, template_of, truncated_share
from headstart.tokenizers.tokenizer import Tokenizer, Vocabularies


def framed_side(texts: Sequence[str], tokenizer: Tokenizer, frame: Template, length: int) -> list[Framed]:
    """The texts of one side of the pairs, as the model reads or writes them, truncated to the length."""
    return [frame.one(ids, length) for ids in tokenizer.encode_many(texts)]


class Ragged:
    """Sequences of any length in one array, so that a batch of them is padded without a loop."""

    def __init__(self, sequences: Sequence[np.ndarray]) -> None:
        self.lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        self._flat = np.concatenate(sequences).astype(np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths

    def padded(self, rows: np.ndarray, padding: int) -> tuple[np.ndarray, np.ndarray]:
        """These sequences as one array, and which of it is not padding."""
        positions = np.arange(self.lengths[rows].max())
        present = positions < self.lengths[rows, None]
        index = np.where(present, self._starts[rows, None] + positions, 0)
        return np.where(present, self._flat[index], padding), present


class Translation(Objective):
    """Teacher forcing with label smoothing, over pairs in batches of similar length."""

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
        """`batch_tokens` counts source, target and padding; `smoothing` is label smoothing, `r_drop` R-Drop's weight.

        Lengths are rounded up to `multiple`, so that batches can be padded to a few shapes.
        """
        self.sources = Ragged([example.tokens for example in sources])
        self.targets = Ragged([example.tokens for example in targets])
        self.pad_id, self.target_pad_id = pad_id, target_pad_id
        self.smoothing, self.r_drop = smoothing, r_drop
        longer = [a if a.is_truncated else b for a, b in zip(sources, targets, strict=True)]
        self.truncated_share = truncated_share(longer)
        lengths = np.stack([self.sources.lengths, self.targets.lengths - 1], axis=1)
        self.batch_tokens, self.multiple = batch_tokens, multiple
        self.buckets = LengthBuckets(lengths, batch_tokens=batch_tokens, multiple=multiple)
        self._measured = LengthBuckets(lengths, batch_tokens=batch_tokens, window_batches=len(lengths))

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.buckets.batch_count(seed, 0)))

    def batch_at(self, seed: int, step: int) -> Batch:
        return self.collate(self.buckets.examples_at(seed, step))

    def collate(self, rows: np.ndarray) -> Batch:
        """These pairs as a batch: the decoder reads the target but its last token, and predicts it but its first."""
        tokens, present = self.sources.padded(rows, self.pad_id)
        written, is_written = self.targets.padded(rows, self.target_pad_id)
        return {
            "tokens": tokens, "present": present, "written": written[:, :-1],
            "targets": np.where(is_written, written, IGNORED)[:, 1:], "rows": rows,
        }  # fmt: skip

    def pad_to_static_shape(self, batch: Batch) -> Batch:
        """As many rows as `batch_tokens` allows for the rounded lengths."""
        sides = np.array([batch["tokens"].shape[1], batch["written"].shape[1]])
        rows = self.batch_tokens // int(rounded_up(sides, self.multiple).sum())
        padding = {"tokens": self.pad_id, "present": False, "written": self.target_pad_id, "targets": IGNORED}
        return pad_batch(batch, padding, rows, self.multiple)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        """The smoothed loss; in an evaluation the plain cross-entropy is logged too."""
        if self.r_drop and model.training:
            return self._r_drop_loss(model, batch)
        hidden, targets = select_positions(self._hidden(model, batch), batch), batch["position_targets"]
        count = (targets != IGNORED).sum()
        smoothed = model.head.loss_at(hidden, targets, self.smoothing, wants_correct=False)
        if model.training:
            return Loss(smoothed.sum, count, {})
        plain = model.head.loss_at(hidden, targets)
        return Loss(smoothed.sum, count, {"cross_entropy": (plain.sum, count), "accuracy": (plain.correct, count)})

    def _hidden(self, model: Model, batch: Tensors) -> torch.Tensor:
        # Padding comes after the target, where no position of it attends, and has no target itself: no mask.
        return model.base(batch["tokens"], batch["written"], source_present=batch["present"])

    def _r_drop_loss(self, model: Model, batch: Tensors) -> Loss:
        hidden = self._hidden(model, repeat_batch(batch, ("tokens", "written", "present")))
        first, second = (select_positions(half, batch) for half in hidden.chunk(2))
        targets, counts = batch["position_targets"], batch["position_targets"] != IGNORED
        both = torch.cat([first, second]), torch.cat([targets, targets])
        smoothed = model.head.loss_at(*both, self.smoothing, wants_correct=False)
        divergence = token_symmetric_kl(model.head.output, first, second, counts, model.config.output_vocab)
        return Loss(smoothed.sum / 2 + self.r_drop * divergence, counts.sum(), {})

    def evaluation(self) -> Iterator[Batch]:
        """Every pair once, in batches of similar length that never change."""
        for rows in self._measured.plan(0, 0):
            yield self.collate(rows)


def translation_objective(
    pairs: PairedSet,
    tokenizers: Vocabularies,
    frame: FrameName,
    length: int,
    batch_tokens: int,
    smoothing: float,
    multiple: int = 1,
    r_drop: float = 0.0,
) -> Translation:
    sources = framed_side(pairs.sources, tokenizers.source, template_of(tokenizers.source, frame), length)
    targets = framed_side(pairs.targets, tokenizers.target, target_template_of(tokenizers.target, frame), length)
    pads = tokenizers.source.id_of("pad"), tokenizers.target.id_of("pad")
    return Translation(sources, targets, batch_tokens, *pads, smoothing, multiple, r_drop)
