"""One step: the gradient of the mean loss over a batch, and the update that it may make.

Nothing here asks the device for a number. Whether an update may be made is decided where the numbers are, and what a
step found is read later, for many steps at once where that saves waiting.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headstart.errors import MemoryFull
from headstart.model.chunked_loss import unit_slope
from headstart.model.model import Model
from headstart.objectives.objective import Batch, Objective, Tensors
from headstart.randomness import seed_of
from headstart.training.batches import shares, to_device
from headstart.training.gpu_update import Update
from headstart.training.machine import Machine
from headstart.training.spreading import Sums, is_shard, local, synchronised, whole
from headstart.training.touched_rows import AdamW
from headstart.training.working_copies import WorkingCopies


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
        losses: nn.Module,
        *,
        seed: int,
        clip: float,
        tell: Callable[[str], None],
        copies: WorkingCopies | None = None,
    ) -> None:
        """`losses` has the model spread over the ranks, if there are several (training/spreading.py)."""
        self.model, self.objective, self.optimizers, self.machine = model, objective, optimizers, machine
        self.losses, self.seed, self.clip, self.tell, self.copies = losses, seed, clip, tell, copies

    def __call__(
        self, batch: Batch, step: int, accumulate: int, limit: float = math.inf
    ) -> tuple[Outcome, int]:
        """Take a step, in so many micro-batches; returns how many it took, which is more where memory was short.

        A loss over the limit makes no update, and neither does one that is not finite.
        """
        self.model.train()
        while True:
            try:
                shared = shares(batch, accumulate, self.machine.ranks.rank, self.machine.ranks.world)
                parts = [to_device(part, self.machine.device) for part, _ in shared]
                sums = self.gradients(parts, step, [counts for _, counts in shared])
                break
            except torch.OutOfMemoryError:
                if self.machine.ranks.world > 1:  # the others wait for what this one was to send
                    raise
                accumulate = self._back_off(accumulate, len(batch["tokens"]))
        return self.update(sums, limit), accumulate

    def gradients(
        self, parts: Sequence[Tensors], step: int | None, is_counted: Sequence[bool] | None = None
    ) -> Sums:
        """Of the summed loss, micro-batch by micro-batch; dropout has a key of its own in each of them.

        Without a step the generator is left as it is: while a graph is recorded it cannot be set. What is not counted
        adds nothing, but is computed: ranks that have no example left take part in what all do together.
        """
        if self.copies is not None:
            self.copies.refresh()
        sums: Sums = {}
        for number, part in enumerate(parts):
            if step is not None:
                torch.manual_seed(seed_of(self.seed, "dropout", step, number, *self.machine.ranks.key))
            counts = is_counted is None or is_counted[number]
            with synchronised(self.losses, number == len(parts) - 1):
                with self.machine.autocast():
                    loss, found = self.losses(self.objective, part)
                (loss if counts else 0 * loss).backward(unit_slope(loss.device))
            if self.copies is not None:
                self.copies.collect()
            for key, pair in found.items():
                total, count = (one.double() if counts else torch.zeros_like(one).double() for one in pair)
                before = sums.get(key)
                sums[key] = (total, count) if before is None else (before[0] + total, before[1] + count)
        return self._over_ranks(sums)

    def settle(self) -> None:
        """A backward pass for nothing, always over the first batch.

        After the first one of a process torch sends gradients in another grouping, which adds them up in another
        order: a run that goes on must not take a step by the old one.
        """
        if not isinstance(self.losses, DistributedDataParallel):
            return
        ranks = self.machine.ranks
        shared = shares(self.objective.batch_at(self.seed, 0), 1, ranks.rank, ranks.world)
        self.model.train()
        self.gradients([to_device(part, self.machine.device) for part, _ in shared], 0)
        self.forget()

    def forget(self) -> None:
        """Drop the gradients, such as those that a step in the middle has left."""
        self.model.zero_grad(set_to_none=True)
        if self.copies is not None:
            self.copies.forget()

    def _over_ranks(self, sums: Sums) -> Sums:
        ranks = self.machine.ranks
        if ranks.world == 1:
            return sums
        flat = ranks.sum(torch.stack([number for pair in sums.values() for number in pair]))
        return {key: (flat[2 * n], flat[2 * n + 1]) for n, key in enumerate(sums)}

    def update(self, sums: Sums, limit: float = math.inf) -> Outcome:
        """Make the update, if it may be made, and forget the gradients."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        gradients += [g for o in self.optimizers if isinstance(o, AdamW) for g in o.row_gradients()]
        total, count = sums["loss"]
        count = count.clamp(min=1.0)
        kernels = self._kernels(gradients)
        norm = (kernels.norm() if kernels else whole(torch.nn.utils.get_total_norm(gradients))) / count
        mean = total / count
        is_taken = mean.isfinite() & norm.isfinite() & (mean <= limit)
        # The mean and the clip are one factor, and one pass over the gradients; none where kernels take it in.
        shortened = (self.clip / (norm + 1e-6)).clamp(max=1.0) if self.clip else torch.ones_like(norm)
        factor = (shortened / count).to(gradients[0].dtype)
        if here := kernels.others if kernels else [local(gradient) for gradient in gradients]:
            torch._foreach_mul_(here, factor)
        decides_itself = self.machine.device.type != "cpu" and not is_shard(gradients[0])
        for optimizer in self.optimizers:
            if kernels and isinstance(optimizer, AdamW):
                kernels.adamw(factor, is_taken)
            elif decides_itself:
                optimizer.found_inf = (~is_taken).float()  # type: ignore[attr-defined]
                optimizer.step()
            elif is_taken:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        both = [number for pair in sums.values() for number in pair]
        return Outcome(tuple(sums), torch.stack([norm.double(), is_taken.double(), *both]))

    def _kernels(self, gradients: Sequence[Tensor]) -> Update | None:
        """What makes AdamW's part of the update and finds the norm, where torch does not (gpu_update.py)."""
        adamw = next((o for o in self.optimizers if isinstance(o, AdamW)), None)
        if adamw is None or self.machine.ranks.world > 1 or is_shard(gradients[0]):
            return None
        return adamw.by_kernels(gradients)

    def _back_off(self, accumulate: int, size: int) -> int:
        """Out of GPU memory: halve the micro-batch, keep the batch, go on, remember it."""
        self.forget()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if accumulate >= size:
            raise MemoryFull(
                "the GPU's memory does not hold a single example of the batch",
                fix="give a smaller --length or model, or use another device",
            )
        accumulate = min(size, 2 * accumulate)
        self.tell(
            f"out of GPU memory: the batch is cut into {accumulate} micro-batches from here on; "
            "the result differs by the order of additions alone"
        )
        return accumulate
