"""Scores of a model over a set: the loss, and what an objective logs besides."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from headstart.model.model import Model
from headstart.objectives.objective import Objective
from headstart.training.batches import to_device
from headstart.training.machine import Machine

OnExamples = Callable[[int], None]


@dataclass(frozen=True)
class Scores:
    """Means over the whole set."""

    values: dict[str, float]
    count: int


@runtime_checkable
class MeasuredWhole(Protocol):
    """An objective with scores that are no means over examples, such as BLEU."""

    def whole_scores(self, model: Model, machine: Machine) -> dict[str, float]:
        """Scores over the whole set; the model is in evaluation mode."""


@torch.inference_mode()
def evaluate(
    model: Model, objective: Objective, machine: Machine, on_examples: OnExamples = lambda count: None
) -> Scores:
    """Every example of the set once; sums are divided at the end alone. `on_examples` hears how many are done."""
    was_training = model.training
    model.eval()
    sums: dict[str, list[float]] = {}
    for batch in objective.evaluation():
        with machine.autocast():
            loss = objective.loss(model, to_device(batch, machine.device))
        for key, (total, count) in {"loss": (loss.sum, loss.count), **loss.log}.items():
            both = sums.setdefault(key, [0.0, 0.0])
            both[0] += float(total)
            both[1] += float(count)
        on_examples(len(batch["tokens"]))
    values = {key: total / max(count, 1.0) for key, (total, count) in sums.items()}
    if isinstance(objective, MeasuredWhole):
        values |= objective.whole_scores(model, machine)
    model.train(was_training)
    return Scores(values, int(sums["loss"][1]))
