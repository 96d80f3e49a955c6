"""Scores of a model over a set: the loss, and what an objective logs besides."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from headstart.model.model import Model
from headstart.objectives.objective import Objective
from headstart.training.batches import to_device
from headstart.training.machine import Machine
from headstart.training.spreading import Losses, is_shard, whole_model

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


def evaluate(
    model: Model,
    objective: Objective,
    machine: Machine,
    on_examples: OnExamples = lambda count: None,
    losses: nn.Module | None = None,
) -> Scores:
    """Every example of the set once; sums are divided at the end alone. `on_examples` hears how many are done.

    Several ranks share the batches; `losses` then has the model as it is spread over them.
    """
    was_training, ranks = model.training, machine.ranks
    model.eval()
    losses = Losses(model) if losses is None else getattr(losses, "module", losses)
    is_sharded = any(is_shard(parameter) for parameter in model.parameters())
    sums: dict[str, list[float]] = {}
    # What is gathered in inference mode could never be trained again.
    with torch.no_grad() if is_sharded else torch.inference_mode():
        for batch, is_counted in ranks.shared(objective.evaluation()):
            with machine.autocast():
                _, found = losses(objective, to_device(batch, machine.device))
            for key, pair in found.items():
                both = sums.setdefault(key, [0.0, 0.0])
                for place, number in enumerate(pair):
                    both[place] += float(number) if is_counted else 0.0
            on_examples(len(batch["tokens"]))
    if ranks.is_joined:
        flat = ranks.sum(torch.tensor(list(sums.values()), dtype=torch.float64))
        sums = dict(zip(sums, flat.tolist(), strict=True))
    values = {key: total / max(count, 1.0) for key, (total, count) in sums.items()}
    if isinstance(objective, MeasuredWhole):
        values |= _whole_scores(model, objective, machine)
    model.train(was_training)
    return Scores(values, int(sums["loss"][1]))


def _whole_scores(model: Model, objective: MeasuredWhole, machine: Machine) -> dict[str, float]:
    """What cannot be shared, the first rank measures for all."""
    alone = whole_model(model, machine)

    def measured() -> dict[str, float]:
        with torch.inference_mode():
            return objective.whole_scores(alone, machine.alone)

    return machine.ranks.first(measured)
