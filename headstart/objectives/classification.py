"""Fine-tuning objectives: a label, several labels or a number for each text, or for each pair of texts."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from headstart.model.heads import IGNORED
from headstart.model.model import Model
from headstart.model.presets import HeadConfig
from headstart.objectives.few_shapes import filled_up
from headstart.objectives.objective import Batch, Loss, Tensors
from headstart.objectives.twice import disagreement, doubled
from headstart.text.buckets import LengthBuckets
from headstart.text.frames import Frame, Framed, pad, truncated_share
from headstart.text.labelled import LabelledSet
from headstart.text.tokenizer import Tokenizer

LENGTH_MULTIPLE = 16


def framed_texts(labelled: LabelledSet, tokenizer: Tokenizer, frame: Frame, length: int) -> list[Framed]:
    """The rows of a set as the model reads them, cut to the length."""
    firsts = tokenizer.encode_many(labelled.texts)
    if labelled.texts_b is None:
        return [frame.one(ids, length) for ids in firsts]
    seconds = tokenizer.encode_many(labelled.texts_b)
    return [frame.pair(a, b, length) for a, b in zip(firsts, seconds, strict=True)]


class Classification:
    """The task of the head: classification, multilabel or regression."""

    def __init__(
        self,
        examples: Sequence[Framed],
        targets: np.ndarray,
        head: HeadConfig,
        batch: int,
        pad_id: int,
        r_drop: float = 0.0,
    ) -> None:
        """`targets` fit the head: class numbers, a table of zeros and ones, or numbers.

        With `r_drop` a text is read twice in training, with different dropout, and what the two readings disagree in
        is added to the loss so many times (objectives/twice.py); for classes alone.
        """
        self.r_drop = r_drop
        self.examples, self.targets, self.head, self.batch, self.pad_id = (
            examples,
            targets,
            head,
            batch,
            pad_id,
        )
        self.truncated_share = truncated_share(examples)
        lengths = np.array([len(example.tokens) for example in examples])
        self.buckets = LengthBuckets(lengths, batch_examples=batch)
        self._by_length = np.argsort(lengths, kind="stable")

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.buckets.batch_count(seed, 0)))

    def batch_at(self, seed: int, step: int) -> Batch:
        return self.collated(self.buckets.examples_at(seed, step))

    def collated(self, rows: np.ndarray) -> Batch:
        """These examples as a batch; `rows` keeps their numbers."""
        chosen = [self.examples[row] for row in rows]
        tokens, present = pad([example.tokens for example in chosen], self.pad_id)
        segments, _ = pad([example.segments for example in chosen], 0)
        return {
            "tokens": tokens, "present": present, "segments": segments,
            "targets": self.targets[rows], "rows": rows,
        }  # fmt: skip

    def filled(self, batch: Batch) -> Batch:
        """In lengths of a multiple, and with classes for labels in as many rows as a batch has."""
        fillers = {"tokens": self.pad_id, "present": False, "segments": 0}
        if self.head.kind != "classification":  # a label that does not count has no sign among numbers
            return filled_up(batch, fillers, len(batch["tokens"]), LENGTH_MULTIPLE)
        return filled_up(batch, fillers, self.batch, LENGTH_MULTIPLE, labels={"targets": IGNORED})

    def loss(self, model: Model, batch: Tensors) -> Loss:
        if self.r_drop and model.training:
            return self._read_twice(model, batch)
        outputs = predict(model, batch)
        loss_sum, count = model.head.loss(outputs, batch["targets"])
        return Loss(loss_sum, count, self._log(outputs, batch["targets"]))

    def _read_twice(self, model: Model, batch: Tensors) -> Loss:
        twice = doubled(batch, ("tokens", "present", "segments", "targets"))
        outputs = predict(model, twice)
        loss_sum, _ = model.head.loss(outputs, twice["targets"])
        first, second = outputs.chunk(2)
        counts = batch["targets"] != IGNORED
        apart = disagreement(first, second).masked_fill(~counts, 0.0).sum()
        log = self._log(first, batch["targets"])
        return Loss(loss_sum / 2 + self.r_drop * apart, counts.sum(), log)

    def _log(
        self, outputs: torch.Tensor, targets: torch.Tensor
    ) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        if self.head.kind == "classification":
            right = outputs.argmax(dim=-1) == targets
            return {"accuracy": (right.sum(), (targets != IGNORED).sum())}
        if self.head.kind == "multilabel":
            right = ((outputs > 0) == (targets > 0)).all(dim=-1)
            return {"accuracy": (right.sum(), torch.full((), len(right), device=right.device))}
        return {}

    def evaluation(self) -> Iterator[Batch]:
        """From short to long, in batches of like length."""
        for first in range(0, len(self._by_length), self.batch):
            yield self.collated(self._by_length[first : first + self.batch])


def predict(model: Model, batch: Tensors) -> torch.Tensor:
    """The head's outputs for a batch of texts."""
    segments = batch["segments"] if model.config.segments else None
    return model(batch["tokens"], present=batch["present"], segments=segments)
