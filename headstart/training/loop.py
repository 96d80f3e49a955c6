"""The loop and its step, for every objective: only here do weights change.

A step depends on (seed, step) and the weights alone, never on how the process got there: batches, masks and dropout
have their own random keys. So a run that was killed resumes from its last checkpoint (checkpoints.py) and ends with
bit-identical weights.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headstart.config.training import LoopConfig, OptimizerConfig
from headstart.errors import Log
from headstart.inference.evaluate import Scores, evaluate
from headstart.kernels.adamw import AdamW
from headstart.kernels.cross_entropy import unit_grad
from headstart.kernels.gpu.adamw import Update
from headstart.kernels.gpu.bf16_weights import Bf16Weights
from headstart.machine import Machine
from headstart.model.model import Model
from headstart.objectives.batches import Batch, Tensors, rank_micro_batches, to_device
from headstart.objectives.objective import Objective, Sums
from headstart.randomness import seed_of
from headstart.runs import checkpoint
from headstart.runs.directory import MetricsFile
from headstart.runs.shards import is_shard, local, whole
from headstart.training.checkpoints import CheckpointManager, LoopState
from headstart.training.compiling import accelerated, uncompiled
from headstart.training.cuda_graphs import CaptureFailed, GraphedStep, Prefetcher
from headstart.training.early_stopping import log_scores
from headstart.training.memory import more_micro_batches
from headstart.training.optimizers.averaging import Average
from headstart.training.optimizers.optimizer import (
    build_optimizers,
    learning_rate_factor,
    set_learning_rate,
    unfreeze_from_top,
)
from headstart.training.parallel import distribute, gradient_sync
from headstart.training.signals import Stopped, StopRequests
from headstart.training.step_log import Progress, StepLog, StepResult, TakenStep
from headstart.training.tensorboard import EventFile

EVALUATION_SAVE_SECONDS = 10.0


@dataclass
class Training:
    """Everything that a training is made of; `train` does the work."""

    directory: Path
    model: Model
    objective: Objective
    valid: Objective | None
    optimizer: OptimizerConfig
    loop: LoopConfig
    machine: Machine
    facts: dict[str, Any] = field(default_factory=dict)
    log: Log = print
    on_step: Callable[[Progress], None] = lambda progress: None
    events: EventFile | None = None
    check_data: Callable[[], None] = lambda: None  # refuses to go on where the data was changed since it was opened
    expected: Mapping[str, Any] = field(default_factory=dict)  # settings that a checkpoint must not contradict
    is_compiled: bool = False
    is_sharded: bool = False

    @property
    def reads_late(self) -> bool:
        """Whether a step's numbers are read later: on a GPU, unless the next step needs them to detect a spike."""
        return self.machine.device.type == "cuda" and not self.loop.spike_factor


# ---- the loop -----------------------------------------------------------------------------------------------


def train(training: Training) -> tuple[LoopState, Scores | None]:
    """Train to the end, from the last checkpoint if there is one; returns the last scores on valid."""
    training.directory.mkdir(parents=True, exist_ok=True)
    loop, model, ranks = training.loop, training.model, training.machine.ranks
    losses = distribute(model, training.machine, training.is_sharded, all_learn=not loop.unfreeze_every)
    optimizers = build_optimizers(model, model.config, training.optimizer, ranks.world)
    average = Average(model, loop.average, loop.average_decay)
    file = training.directory / "metrics.jsonl" if ranks.is_first else Path(os.devnull)
    metrics = MetricsFile(file, training.log)
    checkpoints = CheckpointManager(
        training.directory, model, optimizers, average, metrics, ranks, training.facts, training.log,
        training.expected,
    )  # fmt: skip
    state = checkpoints.resume(loop.steps, loop.accumulate, needs_best=bool(loop.patience))
    if training.events is not None:
        training.events.begin(metrics.read)
        metrics.on_record = training.events.add
    step_log = StepLog(state, metrics, loop, training.log, training.on_step, reads_late=training.reads_late)
    last_save, is_saved, scores = time.monotonic(), state.step > 0, None

    def save() -> None:
        nonlocal last_save, is_saved
        training.check_data()  # else a checkpoint would keep what was learnt from anything
        checkpoints.save(state, max(1, loop.keep))
        last_save, is_saved = time.monotonic(), True

    with (
        StopRequests() as requests,
        accelerated(model, training.objective, training.machine, training.is_compiled) as copies,
        closing(Step(training, losses, optimizers, copies)) as step,
    ):
        while True:
            # ---- save and evaluate once in a while, and at the end ------------------------------------------
            is_finished = state.step >= state.steps or state.stopped_early
            is_due = loop.evaluate_every and state.step > 0 and state.step % loop.evaluate_every == 0
            if training.valid is not None and (is_due or is_finished) and state.evaluated_step < state.step:
                step_log.read()
                # So soon after the last save an evaluation that fails loses less than the save takes.
                is_late = time.monotonic() - last_save > EVALUATION_SAVE_SECONDS
                if not is_saved and any(ranks.agree(is_late)):
                    save()
                with average.applied(), uncompiled(training.is_compiled):
                    scores = evaluate(model, training.valid, training.machine, losses=losses)
                    log_scores(scores, state, loop, checkpoints)
                is_saved = False
                step_log.restart_clock()
            if is_finished or state.stopped_early:
                break

            # ---- one step: batch, forward, backward, clip, update (`Step`, below) ----------------------------
            unfreeze_from_top(model, loop.unfreeze_every, state.step)
            factor = learning_rate_factor(loop, state.step, state.steps)
            set_learning_rate(optimizers, factor)
            batch, result, state.accumulate = step(state.step, state.accumulate, step_log.spike_limit())
            average.update(state.step, state.steps)
            state.step, is_saved = state.step + 1, False

            # ---- log and save --------------------------------------------------------------------------------
            step_log.add(TakenStep(state.step, batch, optimizers[0].param_groups[0]["peak"] * factor, result))
            by_step = loop.save_every and state.step % loop.save_every == 0
            is_late = time.monotonic() - last_save > loop.save_every_seconds
            # The signal is read once, since it may come between any two lines; and all ranks do the same.
            signal, by_clock = ranks.agree_at(state.step, requests.number or 0, is_late)
            is_save_due = by_step or by_clock or signal
            if is_save_due or step_log.is_due():
                step_log.read()
            checkpoint.fault("step")
            if is_save_due:
                save()
            if signal:
                raise Stopped(signal, state.step)
    step_log.read()
    training.check_data()
    if not is_saved and loop.keep:
        save()
    if loop.patience and state.best_step >= 0:
        checkpoints.load_best(state)
    elif average.tensors:
        average.put(average.tensors)
    return state, scores


# ---- one step -----------------------------------------------------------------------------------------------


class Step:
    """One step: batch, forward, backward, clip, update.

    Nothing here asks a GPU for a number, which would mean to wait for it: whether the update is made is decided on the
    device, and the result is read later (step_log.py).
    """

    def __init__(
        self,
        training: Training,
        losses: nn.Module,
        optimizers: list[torch.optim.Optimizer],
        copies: Bf16Weights | None = None,
    ) -> None:
        """`losses` has the model, distributed over the ranks; `copies` are its weights in bf16, if there are any."""
        self.model, self.objective, self.machine = training.model, training.objective, training.machine
        self.loop, self.log = training.loop, training.log
        self.losses, self.optimizers, self.copies = losses, optimizers, copies
        self._warm_up_ddp()
        self.graphs: GraphedStep[StepResult] | None = None
        self._prefetcher: Prefetcher | None = None
        # In CUDA graphs the same parameters learn at every step.
        if training.reads_late and not self.loop.unfreeze_every and self.machine.ranks.world == 1:
            self.graphs = GraphedStep(self.compute, self.loop.seed, self.machine.device)
            self._prefetcher = Prefetcher(self.objective, self.loop.seed, self.loop.steps)

    def __call__(self, number: int, accumulate: int, limit: float = math.inf) -> tuple[Batch, StepResult, int]:
        """Take step `number` in so many micro-batches; returns its batch, its result and how many it took.

        A loss over the limit makes no update, and neither does one that is not finite.
        """
        self.model.train()
        if self.graphs is None or self._prefetcher is None or accumulate > 1:
            batch = self.objective.batch_at(self.loop.seed, number)
        else:
            batch, tensors = self._prefetcher(number)
            try:
                return batch, self.graphs(tensors, number), 1
            except torch.OutOfMemoryError:
                self.graphs = None  # they hold memory
            except CaptureFailed as error:
                self.graphs = None
                self.log(f"training without CUDA graphs, since a step cannot be captured: {error}")
            self.drop_grads()
        ranks = self.machine.ranks
        while True:
            try:
                parts = rank_micro_batches(batch, accumulate, ranks.rank, ranks.world)
                tensors_of = [to_device(part, self.machine.device) for part, _ in parts]
                sums = self.forward_backward(tensors_of, number, [is_counted for _, is_counted in parts])
                break
            except torch.OutOfMemoryError:
                if ranks.world > 1:  # the others wait for this one's gradients
                    raise
                self.drop_grads()
                accumulate = more_micro_batches(accumulate, len(batch["tokens"]), self.log)
        return batch, self.update(sums, limit), accumulate

    def compute(self, parts: Sequence[Tensors], number: int | None) -> StepResult:
        """The whole computation of a step: what a CUDA graph holds."""
        return self.update(self.forward_backward(parts, number))

    def forward_backward(
        self, parts: Sequence[Tensors], number: int | None, is_counted: Sequence[bool] | None = None
    ) -> Sums:
        """The gradient of the summed loss, micro-batch by micro-batch; dropout has its own key in each.

        Without a number the random generator is left alone: in a capture it cannot be set. A micro-batch that is not
        counted adds nothing, but is computed: a rank without examples takes part in what all ranks do together.
        """
        if self.copies is not None:
            self.copies.refresh()
        sums: Sums = {}
        for index, part in enumerate(parts):
            if number is not None:
                torch.manual_seed(seed_of(self.loop.seed, "dropout", number, index, *self.machine.ranks.key))
            counts = is_counted is None or is_counted[index]
            with gradient_sync(self.losses, is_last=index == len(parts) - 1):
                with self.machine.autocast():
                    loss, logged = self.losses(self.objective, part)
                (loss if counts else 0 * loss).backward(unit_grad(loss.device))
            if self.copies is not None:
                self.copies.collect()
            for key, pair in logged.items():
                total, count = (one.double() if counts else torch.zeros_like(one).double() for one in pair)
                before = sums.get(key)
                sums[key] = (total, count) if before is None else (before[0] + total, before[1] + count)
        if self.machine.ranks.world == 1:
            return sums
        flat = self.machine.ranks.sum(torch.stack([one for pair in sums.values() for one in pair]))
        return {key: (flat[2 * index], flat[2 * index + 1]) for index, key in enumerate(sums)}

    def update(self, sums: Sums, limit: float = math.inf) -> StepResult:
        """Clip the gradient, update the weights if that is allowed, and drop the gradients."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        grads += [g for o in self.optimizers if isinstance(o, AdamW) for g in o.row_gradients()]
        total, count = sums["loss"]
        count = torch.where(count > 0, count, 1.0)  # with class weights it may be less than 1
        kernels = self._adamw_kernels(grads)
        norm = (kernels.norm() if kernels else whole(torch.nn.utils.get_total_norm(grads))) / count
        mean = total / count
        is_updated = mean.isfinite() & norm.isfinite() & (mean <= limit)
        # Mean and clip are one factor, in one pass over the gradients; none where the kernels apply it.
        clip = self.loop.clip
        shortened = (clip / (norm + 1e-6)).clamp(max=1.0) if clip else torch.ones_like(norm)
        factor = (shortened / count).to(grads[0].dtype)
        if here := kernels.others if kernels else [local(grad) for grad in grads]:
            torch._foreach_mul_(here, factor)
        decides_on_device = self.machine.device.type != "cpu" and not is_shard(grads[0])
        for optimizer in self.optimizers:
            if kernels and isinstance(optimizer, AdamW):
                kernels.adamw(factor, is_updated)
            elif decides_on_device:
                optimizer.found_inf = (~is_updated).float()  # type: ignore[attr-defined]
                optimizer.step()
            elif is_updated:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        both = [one for pair in sums.values() for one in pair]
        return StepResult(tuple(sums), torch.stack([norm.double(), is_updated.double(), *both]))

    def _adamw_kernels(self, grads: Sequence[Tensor]) -> Update | None:
        """The kernels of AdamW's update and of the norm (kernels/gpu/adamw.py); None where torch computes them."""
        adamw = next((o for o in self.optimizers if isinstance(o, AdamW)), None)
        if adamw is None or self.machine.ranks.world > 1 or is_shard(grads[0]):
            return None
        return adamw.by_kernels(grads)

    def _warm_up_ddp(self) -> None:
        """A backward pass for nothing, always over the first batch.

        After the first one of a process DDP groups gradients otherwise, which sums them in another order: a resumed
        run must not take a step with the first grouping.
        """
        if not isinstance(self.losses, DistributedDataParallel):
            return
        ranks = self.machine.ranks
        parts = rank_micro_batches(self.objective.batch_at(self.loop.seed, 0), 1, ranks.rank, ranks.world)
        self.model.train()
        self.forward_backward([to_device(part, self.machine.device) for part, _ in parts], 0)
        self.drop_grads()

    def drop_grads(self) -> None:
        """Drop the gradients that an interrupted step has left."""
        self.model.zero_grad(set_to_none=True)
        if self.copies is not None:
            self.copies.forget()

    def close(self) -> None:
        """Make no more batches."""
        if self._prefetcher is not None:
            self._prefetcher.close()
