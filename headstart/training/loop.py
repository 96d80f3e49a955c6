"""The loop: the one place where weights change, for every objective.

What happens at a step depends on (seed, step) and the weights, never on how the process got there: batches,
corruption and dropout have keys of their own. So a run that was killed goes on from its last checkpoint to the
same bytes (resuming.py).
"""

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from headstart.errors import RunFailed
from headstart.model.model import Model
from headstart.objectives.objective import Batch, Objective
from headstart.training import checkpoint
from headstart.training.average import Average, AverageName
from headstart.training.choosing import cost
from headstart.training.compiling import as_written, quickened
from headstart.training.evaluate import Scores, evaluate
from headstart.training.machine import Machine
from headstart.training.metrics import MetricsFile
from headstart.training.optimizer import OptimizerConfig, build_optimizers, set_rate
from headstart.training.resuming import Keeper, LoopState
from headstart.training.schedules import SCHEDULES, ScheduleName
from headstart.training.signals import Stopped, StopRequests
from headstart.training.spreading import spread
from headstart.training.step import Found, Outcome, Step, read
from headstart.training.steps import Steps
from headstart.training.tracking import EventFile
from headstart.training.working_copies import WorkingCopies


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long and how carefully to train."""

    seed: int = 0
    """The seed that order, corruption and dropout are derived from."""

    steps: int = 1000
    """Updates of the weights."""

    accumulate: int = 1
    """Micro-batches that a batch is cut into, to save memory; the result differs by rounding alone."""

    schedule: ScheduleName = "linear"
    """How the learning rate falls after the warm-up."""

    warmup: float = 0.1
    """Share of the steps that the rate rises over."""

    cooldown: float = 0.2
    """Share of the steps that a constant schedule falls over at the end."""

    clip: float = 1.0
    """Longest gradient; a longer one is shortened (0: never)."""

    evaluate_every: int = 0
    """Steps between evaluations on valid (0: at the end alone)."""

    patience: int = 0
    """Evaluations without a better one after which to stop, and go back to the best (0: never)."""

    choose_by: str = "loss"
    """The measure on valid that says which one is better."""

    save_every: int = 0
    """Steps between checkpoints, besides those by the clock (0: none)."""

    save_every_seconds: float = 60.0
    """Seconds between checkpoints."""

    keep: int = 2
    """Checkpoints that stay."""

    average: AverageName = "none"
    """Average of the weights to evaluate and to end with: a moving one, or the mean over the last fifth."""

    average_decay: float = 0.999
    """How much of a moving average stays at each step."""

    unfreeze_every: int = 0
    """Steps after which one more block learns, from the top down (0: all learn from the start)."""

    skip_limit: int = 5
    """Updates in a row that may be skipped for a loss or gradient that is not finite, before the run fails."""

    spike_factor: float = 0.0
    """Skip an update whose loss is so many times the median of the last 32 (0: never)."""


SPIKE_WINDOW = 32
READ_SECONDS, READ_STEPS = 0.5, 100  # how long what a GPU found may stay unread


@dataclass(frozen=True)
class Progress:
    """What is told after every step."""

    step: int
    steps: int
    loss: float
    tokens_a_second: float
    seconds: float


@dataclass(frozen=True)
class Taken:
    """A step that was taken, and perhaps not read yet."""

    step: int
    batch: Batch
    rate: float
    outcome: Outcome

    @property
    def tokens(self) -> int:
        return int(self.batch["tokens"].size)


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
    tell: Callable[[str], None] = print
    on_step: Callable[[Progress], None] = lambda progress: None
    events: EventFile | None = None
    is_compiled: bool = False
    is_sharded: bool = False


def train(training: Training) -> tuple[LoopState, Scores | None]:
    """Train to the end, from wherever the directory's last checkpoint is; returns the last scores on valid."""
    training.directory.mkdir(parents=True, exist_ok=True)
    loop, model, ranks = training.loop, training.model, training.machine.ranks
    losses = spread(model, training.machine, training.is_sharded, all_learn=not loop.unfreeze_every)
    optimizers = build_optimizers(model, model.config, training.optimizer, ranks.world)
    average = Average(model, loop.average, loop.average_decay)
    log = training.directory / "metrics.jsonl" if ranks.is_first else Path(os.devnull)
    metrics = MetricsFile(log, training.tell)
    keeper = Keeper(
        training.directory, model, optimizers, average, metrics, ranks, training.facts, training.tell
    )
    state = keeper.resume(loop.steps, loop.accumulate)
    if training.events is not None:
        training.events.begin(metrics.read)
        metrics.on_record = training.events.add
    last_save, is_saved, scores = time.monotonic(), state.step > 0, None
    unread: list[Taken] = []
    last_read = time.monotonic()

    def read_steps() -> None:
        nonlocal last_read
        found = read([taken.outcome for taken in unread])
        seconds = max(time.monotonic() - last_read, 1e-9) / max(1, len(unread))
        for taken, numbers in zip(unread, found, strict=True):
            _note_step(training, state, taken, numbers, metrics)
            training.on_step(Progress(taken.step, state.steps, numbers.loss, taken.tokens / seconds, seconds))
        unread.clear()
        last_read = time.monotonic()

    def save() -> None:
        nonlocal last_save, is_saved
        keeper.save(state, loop.keep)
        last_save, is_saved = time.monotonic(), True

    with (
        StopRequests() as requests,
        quickened(model, training.objective, training.machine, training.is_compiled) as copies,
        closing(_steps(training, losses, optimizers, copies)) as steps,
    ):
        while True:
            # ---- evaluate once in a while, and at the end; what is evaluated is saved first ------------------
            finished = state.step >= state.steps or state.stopped_early
            due = loop.evaluate_every and state.step > 0 and state.step % loop.evaluate_every == 0
            if training.valid is not None and (due or finished) and state.evaluated_step < state.step:
                read_steps()
                if not is_saved:
                    save()
                with average.applied(), as_written(training.is_compiled):
                    scores = evaluate(model, training.valid, training.machine, losses=losses)
                    _note_scores(training, state, scores, keeper)
                is_saved, last_read = False, time.monotonic()
            if finished or state.stopped_early:
                break

            # ---- one step ------------------------------------------------------------------------------------
            _freeze(model, loop, state.step)
            factor = _rate(loop, state)
            set_rate(optimizers, factor)
            batch, outcome, state.accumulate = steps.take(
                state.step, state.accumulate, _spike_limit(loop, state)
            )
            average.update(state.step, state.steps)
            state.step, is_saved = state.step + 1, False
            unread.append(Taken(state.step, batch, optimizers[0].param_groups[0]["peak"] * factor, outcome))

            # ---- tell and save -------------------------------------------------------------------------------
            by_step = loop.save_every and state.step % loop.save_every == 0
            now = time.monotonic()
            # A signal is looked at once, since it may come between any two lines; and all ranks do the same.
            asked, by_clock = ranks.agree_at(
                state.step, requests.number or 0, now - last_save > loop.save_every_seconds
            )
            due_to_save = by_step or by_clock or asked
            if (
                not steps.may_wait
                or due_to_save
                or now - last_read > READ_SECONDS
                or len(unread) >= READ_STEPS
            ):
                read_steps()
            checkpoint.fault("step")
            if due_to_save:
                save()
            if asked:
                raise Stopped(asked, state.step)
    read_steps()
    if not is_saved:
        save()
    if loop.patience and state.best_step >= 0:
        keeper.put_best_back()
    elif average.tensors:
        average.put(average.tensors)
    return state, scores


def one_update(training: Training) -> Callable[[int], Outcome]:
    """A function that trains one step and keeps nothing: for timing. What it returns may have to be waited for."""
    model = training.model
    losses = spread(model, training.machine, training.is_sharded)
    optimizers = build_optimizers(model, model.config, training.optimizer, training.machine.ranks.world)
    held = ExitStack()  # by the function below: what is compiled stays so as long as it lives
    copies = held.enter_context(quickened(model, training.objective, training.machine, training.is_compiled))
    steps = _steps(training, losses, optimizers, copies)

    def update(step: int, held: ExitStack = held) -> Outcome:
        set_rate(optimizers, _rate(training.loop, LoopState(step=step, steps=step + 2)))
        return steps.take(step, training.loop.accumulate)[1]

    return update


# ---- the parts of a step ----------------------------------------------------------------------------------


def _steps(
    training: Training,
    losses: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    copies: WorkingCopies | None,
) -> Steps:
    loop = training.loop
    step = Step(
        training.model, training.objective, optimizers, training.machine, losses,
        seed=loop.seed, clip=loop.clip, tell=training.tell, copies=copies,
    )  # fmt: skip
    step.settle()
    # A spike is one beside the losses before it, which then must be known; and a recording knows what learns.
    may_wait = training.machine.device.type == "cuda" and not loop.spike_factor
    may_record = may_wait and not loop.unfreeze_every and training.machine.ranks.world == 1
    return Steps(step, loop.steps, may_wait=may_wait, may_record=may_record)


def _spike_limit(loop: LoopConfig, state: LoopState) -> float:
    """The loss over which an update is not made."""
    if not loop.spike_factor or len(state.recent_losses) < SPIKE_WINDOW:
        return math.inf
    return loop.spike_factor * float(np.median(state.recent_losses))


def _note_step(
    training: Training, state: LoopState, taken: Taken, found: Found, metrics: MetricsFile
) -> None:
    """Log a step; one that made no update is counted, and told with its examples."""
    if found.is_taken:
        state.skipped_in_row = 0
        if training.loop.spike_factor:
            state.recent_losses = [*state.recent_losses, found.loss][-SPIKE_WINDOW:]
    else:
        state.skipped += 1
        state.skipped_in_row += 1
        is_finite = math.isfinite(found.loss) and math.isfinite(found.gradient_norm)
        reason = "spike" if is_finite else "not finite"
        rows = taken.batch["rows"].tolist() if "rows" in taken.batch else None
        metrics.write(
            event="skipped", step=taken.step, reason=reason, loss=found.loss,
            gradient_norm=found.gradient_norm, rows=rows,
        )  # fmt: skip
        training.tell(f"step {taken.step}: the update is skipped, its loss or gradient is {reason}")
        if state.skipped_in_row >= training.loop.skip_limit:
            raise RunFailed(
                f"{state.skipped_in_row} updates in a row were skipped at step {taken.step}; "
                "the last good checkpoint is kept",
                fix="give a smaller --learning-rate or more --warmup",
            )
    metrics.write(
        step=taken.step, loss=found.loss, gradient_norm=found.gradient_norm, learning_rate=taken.rate,
        tokens=taken.tokens, **found.log,
    )  # fmt: skip


def _note_scores(training: Training, state: LoopState, scores: Scores, keeper: Keeper) -> None:
    """Log an evaluation; remember the best, and stop where patience ends."""
    state.evaluated_step = state.step
    keeper.metrics.write(event="valid", step=state.step, **scores.values)
    score = cost(scores.values, training.loop.choose_by)
    if math.isfinite(score) and (state.best_score is None or score < state.best_score):
        state.best_score, state.best_step = score, state.step
        if training.loop.patience:
            keeper.save_best(state)
    elif training.loop.patience:
        waited = (state.step - max(0, state.best_step)) // max(1, training.loop.evaluate_every)
        state.stopped_early = waited >= training.loop.patience


def _rate(loop: LoopConfig, state: LoopState) -> float:
    warmup, cooldown = round(loop.warmup * state.steps), round(loop.cooldown * state.steps)
    return SCHEDULES[loop.schedule](state.step, state.steps, warmup, cooldown)


def _freeze(model: Model, loop: LoopConfig, step: int) -> None:
    """Gradual unfreezing: the head learns from the start, then one more block from the top at a time."""
    if not loop.unfreeze_every:
        return
    base: Any = model.base
    free, depth = step // loop.unfreeze_every, len(base.stack.blocks)
    for number, block in enumerate(base.stack.blocks):
        block.requires_grad_(depth - number <= free)
    base.stack.final_norm.requires_grad_(free > 0)
    base.embedding.requires_grad_(free > depth)
