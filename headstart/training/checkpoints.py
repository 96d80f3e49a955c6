"""Saving a training and resuming it, so that it ends with bit-identical weights.

Under several ranks all of them gather their shards and the first one writes; all of them read.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headstart.distributed import Ranks
from headstart.errors import IntegrityError, Log, UserError
from headstart.model.model import Model
from headstart.runs import checkpoint
from headstart.runs.directory import MetricsFile
from headstart.runs.shards import gathered
from headstart.training.optimizers.averaging import Average
from headstart.training.optimizers.optimizer import load_state, state_tensors


@dataclass
class LoopState:
    """The state of a run besides its tensors: plain data, saved with every checkpoint."""

    step: int = 0
    steps: int = 0
    accumulate: int = 1
    skipped: int = 0
    skipped_in_row: int = 0
    recent_losses: list[float] = field(default_factory=list)
    evaluated_step: int = -1
    best_score: float | None = None
    best_step: int = -1
    best_sha256: str = ""
    """Over the best weights, where they were saved."""

    stopped_early: bool = False
    average_count: int = 0
    metrics_bytes: int = 0
    evaluations: list[dict[str, float | None]] = field(default_factory=list)
    """The scores on valid, each with its step: what is chosen and drawn comes from here, and not from the log."""

    late_losses: list[float] = field(default_factory=list)
    """Of the predicted tokens, over the last tenth of the steps so far."""

    loss_count: int = 0

    @property
    def train_loss(self) -> float | None:
        """The mean over the last tenth of the steps."""
        return float(np.mean(self.late_losses)) if self.late_losses else None

    def add_loss(self, loss: float) -> None:
        """Take the loss of a step; one that is not finite does not count."""
        if math.isfinite(loss):
            self.loss_count += 1
            self.late_losses.append(loss)
            del self.late_losses[: -max(1, self.loss_count // 10)]


@dataclass(frozen=True)
class CheckpointManager:
    """Saves a training into its directory, and resumes it from there.

    A checkpoint whose settings contradict the expected ones is of another run, and is not used.
    """

    directory: Path
    model: Model
    optimizers: list[torch.optim.Optimizer]
    average: Average
    metrics: MetricsFile
    ranks: Ranks
    facts: dict[str, Any]
    log: Log
    expected: Mapping[str, Any] = field(default_factory=dict)

    def save(self, state: LoopState, keep: int) -> None:
        """Write a checkpoint to resume from."""
        self.metrics.flush()
        state.metrics_bytes, state.average_count = self.metrics.size(), self.average.count
        tensors = {**state_tensors(self.model, self.optimizers), **self.average.state_tensors()}
        self._write("checkpoints", state, self._gathered_weights(), tensors, self.facts, keep)
        self.ranks.first(lambda: self._drop_bests(state.best_step))

    def save_best(self, state: LoopState) -> None:
        """Write the model's weights as the best so far; a checkpoint may still need an earlier one."""
        weights = self._gathered_weights()
        state.best_sha256 = self.ranks.first(lambda: checkpoint.weights_digest(weights))
        self._write("best", state, weights, {}, {}, keep=sys.maxsize)
        self.ranks.first(lambda: self._drop_bests(state.best_step))

    def load_best(self, state: LoopState) -> None:
        """Give the model the best weights."""
        checkpoint.copy_into(self._weights(), self._best(state).model, str(self.directory / "best"))

    def _best(self, state: LoopState) -> checkpoint.Checkpoint:
        path = self.directory / "best" / f"step-{state.best_step:08d}"
        try:
            best = checkpoint.load(path)
            if checkpoint.weights_digest(best.model) != state.best_sha256:
                raise IntegrityError("the weights are not those that were saved", where=path)
        except IntegrityError as error:
            what = f"the best weights, of step {state.best_step}, cannot be used: {error.where}: {error.what}"
            fix = f"delete {path.parent} and {self.directory / 'checkpoints'}: the same command then starts anew"
            raise IntegrityError(what, where=path, fix=fix) from error
        return best

    def _drop_bests(self, last: int) -> None:
        """Keep the last best weights, and those of each checkpoint that is there."""
        states = checkpoint.states(self.directory / "checkpoints")
        checkpoint.drop_others(self.directory / "best", {last, *(state.get("best_step", -1) for state in states)})

    def resume(self, steps: int, accumulate: int, *, needs_best: bool = False) -> LoopState:
        """Load the last good checkpoint and return its state; or a new state."""
        last = self._latest()
        if last is None:
            self.metrics.resume(0)
            return LoopState(steps=steps, accumulate=accumulate)
        where = str(self.directory / "checkpoints" / f"step-{last.step:08d}")
        try:
            state = LoopState(**last.state)
        except TypeError as error:
            what, fix = f"its state has other fields ({error})", "use the version that wrote it"
            raise IntegrityError(what, where=where, fix=fix, code="mismatch") from error
        if state.steps < steps:  # more steps than before: the run is extended
            state = replace(state, stopped_early=False)
        state.steps = steps
        checkpoint.copy_into(self._weights(), last.model, where)
        tensors = {key: value for key, value in last.optimizer.items() if not key.startswith("average|")}
        load_state(self.model, self.optimizers, tensors, where)
        if self.average.kind != "none":
            self.average.load(last.optimizer, state.average_count)
        if needs_best and state.best_sha256:  # now, and not after hours
            self._best(state)
        elif needs_best:  # what was the best before there was a --patience was not saved
            state = replace(state, best_score=None, best_step=-1)
        self.metrics.resume(state.metrics_bytes, state.step)
        for line in changed_facts(last.manifest, self.facts):
            self.log(f"not bit-exact from here on: {line}")
        self.log(f"resuming from step {state.step} of {state.steps}")
        return state

    def _gathered_weights(self) -> dict[str, torch.Tensor]:
        return gathered(self._weights(), self.ranks.is_first)

    def _weights(self) -> dict[str, torch.nn.Parameter]:
        return dict(self.model.named_parameters())

    def _write(
        self, name: str, state: LoopState, weights: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor],
        facts: dict[str, Any], keep: int,
    ) -> None:  # fmt: skip
        tensors = gathered(tensors, self.ranks.is_first)
        given = (self.directory / name, state.step, weights, tensors, asdict(state), facts, keep)
        self.ranks.first(lambda: str(checkpoint.save(*given)))

    def _latest(self) -> checkpoint.Checkpoint | None:
        """The last good checkpoint, the same one for all ranks."""
        directory = self.directory / "checkpoints"
        for one in (directory, self.directory / "best"):
            self.ranks.first(partial(checkpoint.clean, one))
        last, passed_over = checkpoint.latest(directory, self.expected)
        step = last.step if last else 0
        if self.ranks.agree(step) != (step,):
            what = "the first rank has newer checkpoints than this one sees"
            fix = "--out has to be where all nodes see the same files"
            raise UserError(what, where=directory, fix=fix, code="mismatch")
        for line in passed_over:
            self.log(line)
        return last


def changed_facts(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between the machine that wrote a checkpoint and this one."""
    usual = {"world": "1", "sharded": "no", "compiled": "no"}
    old, new = ({**usual, **facts.get("machine", {})} for facts in (before, now))
    differing = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return [f"{key} was {old.get(key)}, is {new.get(key)}" for key in differing]
