"""Fine-tuning objectives: a label, several labels or a number for each text, or for each pair of texts."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from headstart.config.model import HeadConfig
from headstart.data.labelled import LabelledSet
from headstart.data.labels import LabelMap
from headstart.data.sampler import LengthBuckets
from headstart.model.heads import IGNORED
from headstart.model.model import Model
from headstart.objectives.batches import Batch, Tensors, pad_batch
from headstart.objectives.objective import Loss, Objective, Sums, repeat_batch, symmetric_kl
from headstart.tokenizers.templates import Framed, Template, pad, truncated_share
from headstart.tokenizers.tokenizer import Tokenizer

LENGTH_MULTIPLE = 16
GPU_EVALUATION_BATCH = 128  # texts: smaller batches leave a GPU waiting for Python


def framed_texts(labelled: LabelledSet, tokenizer: Tokenizer, frame: Template, length: int) -> list[Framed]:
    """The rows of a set as the model reads them, truncated to the length."""
    ids, count = labelled.tokenized(tokenizer).token_ids or [], len(labelled)
    if labelled.texts_b is None:
        return [frame.one(text, length) for text in ids]
    return [frame.pair(a, b, length) for a, b in zip(ids[:count], ids[count:], strict=True)]


class Classification(Objective):
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
        """`targets` are classes, zeros and ones, or numbers; `r_drop` is R-Drop's weight, for classes."""
        self.examples, self.targets, self.head, self.batch = examples, targets, head, batch
        self.pad_id, self.r_drop = pad_id, r_drop
        self.weights: np.ndarray | None = None  # of each example in the loss
        self.truncated_share = truncated_share(examples)
        lengths = np.array([len(example.tokens) for example in examples])
        self.buckets = LengthBuckets(lengths, batch_examples=batch)
        self._by_length = np.argsort(lengths, kind="stable")

    def balance_classes(self) -> None:
        """Weigh each example in the loss by how rare its class is: rows / (classes × rows of its class)."""
        _, classes, counts = np.unique(self.targets, return_inverse=True, return_counts=True)
        self.weights = (len(self.targets) / (len(counts) * counts[classes])).astype(np.float32)

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.buckets.batch_count(seed, 0)))

    def batch_at(self, seed: int, step: int) -> Batch:
        return self.collate(self.buckets.examples_at(seed, step))

    def collate(self, rows: np.ndarray) -> Batch:
        """These examples as a batch; `rows` keeps their numbers."""
        chosen = [self.examples[row] for row in rows]
        tokens, present = pad([example.tokens for example in chosen], self.pad_id)
        segments, _ = pad([example.segments for example in chosen], 0)
        weights = {} if self.weights is None else {"weights": self.weights[rows]}
        targets = {"targets": self.targets[rows], "rows": rows}
        return {"tokens": tokens, "present": present, "segments": segments, **targets, **weights}

    def pad_to_static_shape(self, batch: Batch) -> Batch:
        padding, rows = {"tokens": self.pad_id, "present": False, "segments": 0}, len(batch["tokens"])
        if self.head.kind == "classification":  # only classes have a label that is ignored
            padding["targets"], rows = IGNORED, self.batch
        if self.weights is not None:
            padding["weights"] = 0
        return pad_batch(batch, padding, rows, LENGTH_MULTIPLE)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        if self.r_drop and model.training:
            return self._r_drop_loss(model, batch)
        outputs = predict(model, batch)
        loss_sum, count = model.head.loss(outputs, batch["targets"], batch.get("weights"))
        return Loss(loss_sum, count, self._log(outputs, batch["targets"]))

    def _r_drop_loss(self, model: Model, batch: Tensors) -> Loss:
        names = ("tokens", "present", "segments", "targets", "weights")
        repeated = repeat_batch(batch, [name for name in names if name in batch])
        outputs = predict(model, repeated)
        loss_sum, _ = model.head.loss(outputs, repeated["targets"], repeated.get("weights"))
        first, second = outputs.chunk(2)
        counts, divergences = batch["targets"] != IGNORED, symmetric_kl(first, second)
        if "weights" in batch:
            counts, divergences = batch["weights"], divergences * batch["weights"]
        divergence = divergences.masked_fill(counts == 0, 0.0).sum()
        return Loss(loss_sum / 2 + self.r_drop * divergence, counts.sum(), self._log(first, batch["targets"]))

    def _log(self, outputs: torch.Tensor, targets: torch.Tensor) -> Sums:
        if self.head.kind == "classification":
            right = outputs.argmax(dim=-1) == targets
            return {"accuracy": (right.sum(), (targets != IGNORED).sum())}
        if self.head.kind == "multilabel":
            right = ((outputs > 0) == (targets > 0)).all(dim=-1)
            return {"accuracy": (right.sum(), torch.full((), len(right), device=right.device))}
        return {}

    def evaluation(self) -> Iterator[Batch]:
        """From short to long, in batches of similar length."""
        for first in range(0, len(self._by_length), self.batch):
            yield self.collate(self._by_length[first : first + self.batch])


def predict(model: Model, batch: Tensors) -> torch.Tensor:
    """The head's outputs for a batch of texts."""
    segments = batch["segments"] if model.config.segments else None
    return model(batch["tokens"], present=batch["present"], segments=segments)


def evaluation_batch(batch: int, device: str) -> int:
    """Texts in a batch of an evaluation."""
    return max(batch, GPU_EVALUATION_BATCH) if device == "cuda" else batch


def classification_objective(
    labelled: LabelledSet,
    label_map: LabelMap | None,
    tokenizer: Tokenizer,
    frame: Template,
    length: int,
    head: HeadConfig,
    batch: int,
    r_drop: float = 0.0,
) -> Classification:
    """The objective over a labelled set."""
    targets = np.array(labelled.labels, np.float32) if label_map is None else label_map.ids(labelled)
    examples = framed_texts(labelled, tokenizer, frame, length)
    return Classification(examples, targets, head, batch, tokenizer.id_of("pad"), r_drop)
