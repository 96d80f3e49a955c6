"""What steps gave, read late: a GPU is asked for the numbers of many steps at once, so that it seldom waits."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.config.training import LoopConfig
from headstart.errors import Log, RunFailed
from headstart.objectives.batches import Batch
from headstart.runs.directory import MetricsFile
from headstart.training.checkpoints import LoopState

READ_SECONDS, READ_STEPS = 0.5, 100  # how long results may stay unread
SPIKE_WINDOW = 32


@dataclass(frozen=True)
class Progress:
    """How far a training is, after every step."""

    step: int
    steps: int
    loss: float
    tokens_a_second: float
    seconds: float


@dataclass(frozen=True)
class StepNumbers:
    """What a step gave: means over its batch, and whether the update was made."""

    loss: float
    gradient_norm: float
    is_updated: bool
    log: dict[str, float]


@dataclass(frozen=True)
class StepResult:
    """The same on the device, perhaps not computed yet: the norm, the flag, then a sum and a count for each name."""

    names: tuple[str, ...]
    values: Tensor

    def clone(self) -> "StepResult":
        return StepResult(self.names, self.values.clone())

    def read(self) -> StepNumbers:
        """Wait for the device."""
        return read_results([self])[0]


def read_results(results: Sequence[StepResult]) -> list[StepNumbers]:
    """Wait for the device, once for all of them."""
    numbers = []
    rows = torch.stack([result.values for result in results]).tolist() if results else []
    for result, (norm, is_updated, *sums) in zip(results, rows, strict=True):
        pairs = zip(result.names, sums[::2], sums[1::2], strict=True)
        means = {name: total / (count or 1.0) for name, total, count in pairs}
        numbers.append(StepNumbers(means.pop("loss"), norm, bool(is_updated), means))
    return numbers


@dataclass(frozen=True)
class TakenStep:
    """A step that was taken, and perhaps not read yet; the first step has number 1."""

    number: int
    batch: Batch
    learning_rate: float
    result: StepResult


@dataclass
class StepLog:
    """Keeps taken steps until they are read, and then logs each with its numbers and its seconds."""

    state: LoopState
    metrics: MetricsFile
    loop: LoopConfig
    log: Log
    on_step: Callable[[Progress], None]
    reads_late: bool

    def __post_init__(self) -> None:
        self._unread: list[TakenStep] = []
        self.restart_clock()

    def restart_clock(self) -> None:
        """Leave the time since the last step out of the steps' seconds."""
        self._last_read = time.monotonic()

    def add(self, step: TakenStep) -> None:
        self._unread.append(step)

    def is_due(self) -> bool:
        """Whether results have waited long enough."""
        if not self.reads_late or len(self._unread) >= READ_STEPS:
            return True
        return time.monotonic() - self._last_read > READ_SECONDS

    def read(self) -> None:
        """Read and log all that is unread."""
        numbers = read_results([step.result for step in self._unread])
        seconds = max(time.monotonic() - self._last_read, 1e-9) / max(1, len(self._unread))
        for step, own in zip(self._unread, numbers, strict=True):
            self._log_step(step, own, seconds)
        self._unread.clear()
        self.restart_clock()

    def spike_limit(self) -> float:
        """The loss above which no update is made."""
        if not self.loop.spike_factor or len(self.state.recent_losses) < SPIKE_WINDOW:
            return math.inf
        return self.loop.spike_factor * statistics.median(self.state.recent_losses)

    def _log_step(self, step: TakenStep, numbers: StepNumbers, seconds: float) -> None:
        """A skipped update is counted, and logged with its examples."""
        state, common = self.state, {"loss": numbers.loss, "gradient_norm": numbers.gradient_norm}
        if numbers.is_updated:
            state.skipped_in_row = 0
            if self.loop.spike_factor:
                state.recent_losses = [*state.recent_losses, numbers.loss][-SPIKE_WINDOW:]
        else:
            state.skipped += 1
            state.skipped_in_row += 1
            reason = "spike" if all(map(math.isfinite, common.values())) else "not finite"
            rows = step.batch["rows"].tolist() if "rows" in step.batch else None
            self.metrics.write(event="skipped", step=step.number, reason=reason, **common, rows=rows)
            self.log(f"step {step.number}: the update is skipped, its loss or gradient is {reason}")
            if state.skipped_in_row >= self.loop.skip_limit:
                raise RunFailed(
                    f"{state.skipped_in_row} updates in a row were skipped at step {step.number}; "
                    "the last good checkpoint is kept",
                    fix="give a smaller --learning-rate or more --warmup",
                    code="not-finite" if reason == "not finite" else "failed",
                )
        state.add_loss(numbers.log.get("masked_loss", numbers.loss))
        tokens = int(step.batch["tokens"].size)
        self.metrics.write(step=step.number, **common, learning_rate=step.learning_rate, tokens=tokens, **numbers.log)
        self.on_step(Progress(step.number, state.steps, numbers.loss, tokens / seconds, seconds))
