"""The loop: the one place where weights change, for every objective.

What happens at a step depends on (seed, step) and the weights, never on how the process got there: batches,
corruption and dropout have keys of their own. So a run that was killed goes on from its last checkpoint to the
same bytes.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.errors import IntegrityError, RunFailed, TryAgain
from headstart.model.model import Model
from headstart.objectives.objective import Batch, Objective
from headstart.randomness import seed_of
from headstart.training import checkpoint
from headstart.training.average import Average, AverageName
from headstart.training.batches import micro_batches, to_device
from headstart.training.choosing import cost
from headstart.training.evaluate import Scores, evaluate
from headstart.training.machine import Machine
from headstart.training.metrics import MetricsFile
from headstart.training.optimizer import (
    OptimizerConfig,
    build_optimizers,
    load_state,
    set_rate,
    state_tensors,
)
from headstart.training.schedules import SCHEDULES, ScheduleName
from headstart.training.signals import Stopped, StopRequests
from headstart.training.tracking import EventFile


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


@dataclass
class LoopState:
    """All that a run knows besides tensors; plain data, saved with every checkpoint."""

    step: int = 0
    steps: int = 0
    accumulate: int = 1
    skipped: int = 0
    skipped_in_row: int = 0
    recent_losses: list[float] = field(default_factory=list)
    evaluated_step: int = -1
    best_score: float | None = None
    best_step: int = -1
    stopped_early: bool = False
    average_count: int = 0
    metrics_bytes: int = 0


@dataclass(frozen=True)
class Progress:
    """What is told after every step."""

    step: int
    steps: int
    loss: float
    tokens_a_second: float


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


def train(training: Training) -> tuple[LoopState, Scores | None]:
    """Train to the end, from wherever the directory's last checkpoint is; returns the last scores on valid."""
    training.directory.mkdir(parents=True, exist_ok=True)
    loop, model = training.loop, training.model.to(training.machine.device)
    optimizers = build_optimizers(model, model.config, training.optimizer)
    average = Average(model, loop.average, loop.average_decay)
    metrics = MetricsFile(training.directory / "metrics.jsonl", training.tell)
    state = _resume(training, optimizers, average, metrics)
    if training.events is not None:
        training.events.begin(metrics.read)
        metrics.on_record = training.events.add
    last_save, is_saved, scores = time.monotonic(), state.step > 0, None

    def save() -> None:
        nonlocal last_save, is_saved
        state.metrics_bytes, state.average_count = metrics.size(), average.count
        memory = {**state_tensors(model, optimizers), **average.state_tensors()}
        weights = dict(model.named_parameters())
        directory = training.directory / "checkpoints"
        checkpoint.save(directory, state.step, weights, memory, asdict(state), training.facts, loop.keep)
        last_save, is_saved = time.monotonic(), True

    with StopRequests() as requests:
        while True:
            # ---- evaluate once in a while, and at the end; what is evaluated is saved first ------------------
            finished = state.step >= state.steps or state.stopped_early
            due = loop.evaluate_every and state.step > 0 and state.step % loop.evaluate_every == 0
            if training.valid is not None and (due or finished) and state.evaluated_step < state.step:
                if not is_saved:
                    save()
                with average.applied():
                    scores = evaluate(model, training.valid, training.machine)
                    _note_scores(training, state, scores, metrics)
                is_saved = False
            if finished or state.stopped_early:
                break

            # ---- one step ------------------------------------------------------------------------------------
            started = time.monotonic()
            _freeze(model, loop, state.step)
            set_rate(optimizers, _rate(loop, state))
            batch = training.objective.batch_at(loop.seed, state.step)
            loss, norm, log = _accumulate(training, batch, state)
            if _may_step(training, state, loss, norm, batch, metrics):
                for optimizer in optimizers:
                    optimizer.step()
                average.update(state.step, state.steps)
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            state.step, is_saved = state.step + 1, False

            # ---- tell ----------------------------------------------------------------------------------------
            tokens = int(batch["tokens"].size)
            rate = optimizers[0].param_groups[0]["lr"]
            metrics.write(
                step=state.step, loss=loss, gradient_norm=norm, learning_rate=rate, tokens=tokens, **log
            )
            seconds = max(time.monotonic() - started, 1e-9)
            training.on_step(Progress(state.step, state.steps, loss, tokens / seconds))
            checkpoint.fault("step")

            # ---- save ----------------------------------------------------------------------------------------
            by_step = loop.save_every and state.step % loop.save_every == 0
            asked = requests.number  # looked at once: a signal may come between any two lines
            if by_step or time.monotonic() - last_save > loop.save_every_seconds or asked:
                save()
            if asked:
                raise Stopped(asked, state.step)
    if not is_saved:
        save()
    if loop.patience and state.best_step >= 0:
        best, _ = checkpoint.latest(training.directory / "best")
        if best is not None:
            checkpoint.copy_into(dict(model.named_parameters()), best.model, str(training.directory / "best"))
    elif average.tensors:
        average.put(average.tensors)
    return state, scores


def one_update(training: Training) -> Callable[[int], None]:
    """A function that trains one step and keeps nothing: for timing."""
    model = training.model.to(training.machine.device)
    optimizers = build_optimizers(model, model.config, training.optimizer)

    def update(step: int) -> None:
        state = LoopState(step=step, steps=step + 2, accumulate=training.loop.accumulate)
        set_rate(optimizers, _rate(training.loop, state))
        _accumulate(training, training.objective.batch_at(training.loop.seed, step), state)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return update


# ---- the parts of a step ----------------------------------------------------------------------------------


def _accumulate(training: Training, batch: Batch, state: LoopState) -> tuple[float, float, dict[str, float]]:
    """Gradients of the mean loss over the batch, micro-batch by micro-batch: sums, divided once."""
    model, device = training.model, training.machine.device
    while True:
        try:
            model.train()
            sums: dict[str, tuple[float, float]] = {}
            for number, part in enumerate(micro_batches(batch, state.accumulate)):
                torch.manual_seed(seed_of(training.loop.seed, "dropout", state.step, number))
                with training.machine.autocast():
                    loss = training.objective.loss(model, to_device(part, device))
                loss.sum.backward()
                for key, (total, count) in {"loss": (loss.sum, loss.count), **loss.log}.items():
                    before = sums.get(key, (0.0, 0.0))
                    sums[key] = (before[0] + float(total.detach()), before[1] + float(count))
            break
        except torch.OutOfMemoryError:
            _back_off(training, state, len(batch["tokens"]))
    means = {key: total / max(count, 1.0) for key, (total, count) in sums.items()}
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    examples = max(sums["loss"][1], 1.0)
    norm = float(torch.nn.utils.get_total_norm(gradients)) / examples
    # The mean and the clip are one factor, and one pass over the gradients.
    shortened = min(1.0, training.loop.clip / (norm + 1e-6)) if training.loop.clip else 1.0
    torch._foreach_mul_(gradients, shortened / examples)
    return means.pop("loss"), norm, means


def _back_off(training: Training, state: LoopState, size: int) -> None:
    """Out of GPU memory: halve the micro-batch, keep the batch, go on, remember it."""
    training.model.zero_grad(set_to_none=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if state.accumulate >= size:
        raise TryAgain(
            "the GPU's memory does not hold a single example of the batch",
            fix="give a smaller --length or model, or use another device",
        )
    state.accumulate = min(size, 2 * state.accumulate)
    training.tell(
        f"out of GPU memory: the batch is cut into {state.accumulate} micro-batches from here on; "
        "the result differs by the order of additions alone"
    )


def _may_step(
    training: Training, state: LoopState, loss: float, norm: float, batch: Batch, metrics: MetricsFile
) -> bool:
    """Whether this gradient may reach the weights; what may not is counted and logged with its examples."""
    loop = training.loop
    is_finite = math.isfinite(loss) and math.isfinite(norm)
    window = state.recent_losses
    is_spike = (
        is_finite
        and loop.spike_factor > 0
        and len(window) == SPIKE_WINDOW
        and loss > loop.spike_factor * float(np.median(window))
    )
    if is_finite and not is_spike:
        state.skipped_in_row = 0
        if loop.spike_factor:
            state.recent_losses = [*window, loss][-SPIKE_WINDOW:]
        return True
    state.skipped += 1
    state.skipped_in_row += 1
    reason = "spike" if is_spike else "not finite"
    rows = batch["rows"].tolist() if "rows" in batch else None
    metrics.write(
        event="skipped", step=state.step + 1, reason=reason, loss=loss, gradient_norm=norm, rows=rows
    )
    training.tell(f"step {state.step + 1}: the update is skipped, its loss or gradient is {reason}")
    if state.skipped_in_row >= loop.skip_limit:
        raise RunFailed(
            f"{state.skipped_in_row} updates in a row were skipped at step {state.step + 1}; "
            "the last good checkpoint is kept",
            fix="give a smaller --learning-rate or more --warmup",
        )
    return False


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


# ---- what is kept -----------------------------------------------------------------------------------------


def _resume(
    training: Training, optimizers: list[torch.optim.Optimizer], average: Average, metrics: MetricsFile
) -> LoopState:
    """The state of the last good checkpoint, tensors put back; or a new one."""
    directory = training.directory / "checkpoints"
    checkpoint.clean(directory)
    checkpoint.clean(training.directory / "best")
    found, passed_over = checkpoint.latest(directory)
    for line in passed_over:
        training.tell(line)
    if found is None:
        metrics.cut_back(0)
        return LoopState(steps=training.loop.steps, accumulate=training.loop.accumulate)
    where = str(directory / f"step-{found.step:08d}")
    try:
        state = LoopState(**found.state)
    except TypeError as error:
        raise IntegrityError(
            f"its state has other fields ({error})", where=where, fix="use the version that wrote it"
        ) from error
    if state.steps < training.loop.steps:  # more steps than before: the run is extended
        state = replace(state, stopped_early=False)
    state.steps = training.loop.steps
    checkpoint.copy_into(dict(training.model.named_parameters()), found.model, where)
    memory = {key: value for key, value in found.optimizer.items() if not key.startswith("average|")}
    load_state(training.model, optimizers, memory, where)
    if training.loop.average != "none":
        average.load(found.optimizer, state.average_count)
    metrics.cut_back(state.metrics_bytes)
    for line in changed_facts(found.manifest, training.facts):
        training.tell(f"not bit-exact from here on: {line}")
    training.tell(f"going on from step {state.step} of {state.steps}")
    return state


def changed_facts(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between the machine that wrote a checkpoint and this one."""
    old, new = before.get("machine", {}), now.get("machine", {})
    return [
        f"{key} was {old.get(key)}, is {new.get(key)}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def _note_scores(training: Training, state: LoopState, scores: Scores, metrics: MetricsFile) -> None:
    """Log an evaluation; remember the best, and stop where patience ends."""
    state.evaluated_step = state.step
    metrics.write(event="valid", step=state.step, **scores.values)
    score = cost(scores.values, training.loop.choose_by)
    if math.isfinite(score) and (state.best_score is None or score < state.best_score):
        state.best_score, state.best_step = score, state.step
        if training.loop.patience:
            weights: dict[str, Tensor] = dict(training.model.named_parameters())
            checkpoint.save(training.directory / "best", state.step, weights, {}, asdict(state), {}, keep=1)
    elif training.loop.patience:
        waited = (state.step - max(0, state.best_step)) // max(1, training.loop.evaluate_every)
        state.stopped_early = waited >= training.loop.patience
