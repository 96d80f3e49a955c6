"""What the training loop and an evaluation ask of an objective; and R-Drop, which two objectives share."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headstart.config.model import HeadConfig
from headstart.kernels.constants import CHUNK_NUMBERS, GPU_CHUNK_NUMBERS
from headstart.machine import Machine
from headstart.model.model import Model
from headstart.objectives.batches import Batch, Tensors, with_target_positions

POSITIONS_MULTIPLE = 256
CHUNK_LOGITS = {"cpu": CHUNK_NUMBERS, "cuda": GPU_CHUNK_NUMBERS // 2}
Sums = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Loss:
    """A sum and its count, divided once, over all micro-batches and ranks; `log` has more such pairs."""

    sum: Tensor
    count: Tensor
    log: Sums


class Objective:
    """Turns examples into a batch (corrupts, shifts, pads) and gives the loss."""

    head: HeadConfig  # the head that this objective trains
    r_drop = 0.0  # weight of R-Drop, with which each example is read twice; 0: read once
    uses_target_positions = True  # whether the loss is computed at target positions alone
    fixed_batch_tokens = 0  # tokens of every batch, where all batches have one shape; 0 where shapes vary
    corpus_metrics: Callable[[Model, Machine], dict[str, float]] | None = None
    """Metrics over the whole set that are no means over examples, such as BLEU; the model is in eval mode."""

    def steps_in(self, epochs: float, seed: int) -> int:
        """How many steps so many epochs take."""
        raise NotImplementedError

    def batch_at(self, seed: int, step: int) -> Batch:
        """The global batch of a step: a function of (seed, step) alone."""
        raise NotImplementedError

    def loss(self, model: Model, batch: Tensors) -> Loss:
        """The loss over a batch, or over some of its examples."""
        raise NotImplementedError

    def evaluation(self) -> Iterator[Batch]:
        """Every example once, in an order and with a corruption that never change."""
        raise NotImplementedError

    def pad_to_static_shape(self, batch: Batch) -> Batch:
        """The batch in one of few shapes; the padding must not change the loss."""
        raise NotImplementedError

    def static_batch(self, batch: Batch) -> Batch:
        """The batch as a CUDA graph reads it: in a static shape, without the row numbers."""
        padded = self.pad_to_static_shape({key: array for key, array in batch.items() if key != "rows"})
        return with_target_positions(padded, POSITIONS_MULTIPLE) if self.uses_target_positions else padded


class LossModule(nn.Module):
    """From a batch to its loss in one forward call, which is what torch can distribute."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, objective: Objective, batch: Tensors) -> tuple[Tensor, Sums]:
        """The loss sum for `backward`; and sums and counts of the loss and of all that is logged."""
        loss = objective.loss(self.model, batch)
        pairs = {"loss": (loss.sum, loss.count), **loss.log}
        return loss.sum, {key: (total.detach(), count) for key, (total, count) in pairs.items()}


# ---- R-Drop (Liang and others, 2021): penalise the difference of two readings with different dropout -----


def repeat_batch(batch: Tensors, names: Iterable[str]) -> Tensors:
    """These arrays with every row twice: each copy then has its own dropout."""
    return {name: torch.cat([batch[name]] * 2) for name in names}


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """The mean of both Kullback-Leibler divergences between two readings' probabilities, by row, in nats."""
    p, q = F.log_softmax(first.float(), dim=-1), F.log_softmax(second.float(), dim=-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1) / 2


def token_symmetric_kl(
    logits_of: Callable[[Tensor], Tensor], first: Tensor, second: Tensor, counts: Tensor, vocab: int
) -> Tensor:
    """The sum over the tokens that count, from hidden vectors (tokens, width); logits come in chunks."""

    def of_chunk(first: Tensor, second: Tensor, counts: Tensor) -> Tensor:
        return symmetric_kl(logits_of(first), logits_of(second)).masked_fill(~counts, 0.0).sum()

    size = max(1, CHUNK_LOGITS.get(first.device.type, CHUNK_LOGITS["cpu"]) // vocab)
    chunks = list(zip(first.split(size), second.split(size), counts.split(size), strict=True))
    if len(chunks) == 1:
        return of_chunk(*chunks[0])
    sums = [checkpoint(of_chunk, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    return torch.stack(sums).sum()
