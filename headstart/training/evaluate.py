"""Scores of a model over a set: the loss, and what an objective logs besides."""

from dataclasses import dataclass

import torch

from headstart.model.model import Model
from headstart.objectives.objective import Objective
from headstart.training.batches import to_device
from headstart.training.machine import Machine


@dataclass(frozen=True)
class Scores:
    """Means over the whole set; `choice` is what chooses between checkpoints, smaller being better."""

    values: dict[str, float]
    count: int

    @property
    def choice(self) -> float:
        return self.values["loss"]


@torch.inference_mode()
def evaluate(model: Model, objective: Objective, machine: Machine) -> Scores:
    """Every example of the set once; sums are divided at the end alone."""
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
    model.train(was_training)
    return Scores(
        {key: total / max(count, 1.0) for key, (total, count) in sums.items()}, int(sums["loss"][1])
    )
