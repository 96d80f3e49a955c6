"""One step: the gradient of the mean loss over a batch, and the update that it may make.

Nothing here asks the device for a number. Whether an update may be made is decided where the numbers are, and what a
step found is read later, for many steps at once where that saves waiting.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.errors import TryAgain
from headstart.model.model import Model
from headstart.objectives.objective import Batch, Objective, Tensors
from headstart.randomness import seed_of
from headstart.training.batches import micro_batches, to_device
from headstart.training.machine import Machine


@dataclass(frozen=True)
class Outcome:
    """What a step found, perhaps not computed yet: the gradient's norm, whether it was taken, sums and counts."""

    names: tuple[str, ...]
    values: Tensor


@dataclass(frozen=True)
class Found:
    """The same as numbers."""

    loss: float
    gradient_norm: float
    is_taken: bool
    log: dict[str, float]


def read(outcomes: Sequence[Outcome]) -> list[Found]:
    """Wait until all are there, once."""
    if not outcomes:
        return []
    rows = torch.stack([outcome.values for outcome in outcomes]).tolist()
    return [_found(outcome.names, row) for outcome, row in zip(outcomes, rows, strict=True)]


def _found(names: Sequence[str], row: list[float]) -> Found:
    norm, is_taken, *sums = row
    means = {
        name: total / max(count, 1.0) for name, total, count in zip(names, sums[::2], sums[1::2], strict=True)
    }
    return Found(means.pop("loss"), norm, bool(is_taken), means)


class Step:
    """What is done to a model with a batch; the loop says when, and with what rate."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        optimizers: list[torch.optim.Optimizer],
        machine: Machine,
        *,
        seed: int,
        clip: float,
        tell: Callable[[str], None],
    ) -> None:
        self.model, self.objective, self.optimizers, self.machine = model, objective, optimizers, machine
        self.seed, self.clip, self.tell = seed, clip, tell

    def __call__(
        self, batch: Batch, step: int, accumulate: int, limit: float = math.inf
    ) -> tuple[Outcome, int]:
        """Take a step, in so many micro-batches; returns how many it took, which is more where memory was short.

        A loss over the limit makes no update, and neither does one that is not finite.
        """
        self.model.train()
        while True:
            try:
                parts = [to_device(part, self.machine.device) for part in micro_batches(batch, accumulate)]
                sums = self.gradients(parts, step)
                break
            except torch.OutOfMemoryError:
                accumulate = self._back_off(accumulate, len(batch["tokens"]))
        return self.update(sums, limit), accumulate

    def gradients(self, parts: Sequence[Tensors], step: int | None) -> dict[str, tuple[Tensor, Tensor]]:
        """Of the summed loss, micro-batch by micro-batch; dropout has a key of its own in each of them.

        Without a step the generator is left as it is: while a graph is recorded it cannot be set.
        """
        sums: dict[str, tuple[Tensor, Tensor]] = {}
        for number, part in enumerate(parts):
            if step is not None:
                torch.manual_seed(seed_of(self.seed, "dropout", step, number))
            with self.machine.autocast():
                loss = self.objective.loss(self.model, part)
            loss.sum.backward()
            for key, (total, count) in {"loss": (loss.sum, loss.count), **loss.log}.items():
                found = total.detach().double(), count.double()
                sums[key] = found if key not in sums else (sums[key][0] + found[0], sums[key][1] + found[1])
        return sums

    def update(self, sums: dict[str, tuple[Tensor, Tensor]], limit: float = math.inf) -> Outcome:
        """Make the update, if it may be made, and forget the gradients."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        total, count = sums["loss"]
        count = count.clamp(min=1.0)
        norm = torch.nn.utils.get_total_norm(gradients) / count
        mean = total / count
        is_taken = mean.isfinite() & norm.isfinite() & (mean <= limit)
        # The mean and the clip are one factor, and one pass over the gradients.
        shortened = (self.clip / (norm + 1e-6)).clamp(max=1.0) if self.clip else torch.ones_like(norm)
        torch._foreach_mul_(gradients, (shortened / count).to(gradients[0].dtype))
        on_cpu = self.machine.device.type == "cpu"
        for optimizer in self.optimizers:
            if not on_cpu:
                optimizer.found_inf = (~is_taken).float()  # type: ignore[attr-defined]
            if not on_cpu or is_taken:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        both = [number for pair in sums.values() for number in pair]
        return Outcome(tuple(sums), torch.stack([norm.double(), is_taken.double(), *both]))

    def _back_off(self, accumulate: int, size: int) -> int:
        """Out of GPU memory: halve the micro-batch, keep the batch, go on, remember it."""
        self.model.zero_grad(set_to_none=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if accumulate >= size:
            raise TryAgain(
                "the GPU's memory does not hold a single example of the batch",
                fix="give a smaller --length or model, or use another device",
            )
        accumulate = min(size, 2 * accumulate)
        self.tell(
            f"out of GPU memory: the batch is cut into {accumulate} micro-batches from here on; "
            "the result differs by the order of additions alone"
        )
        return accumulate
