"""What a training keeps of itself, and how it goes on from there to the same bytes.

All ranks bring what they have and the first one writes; all of them read.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from headstart.errors import IntegrityError, UserError
from headstart.model.model import Model
from headstart.training import checkpoint
from headstart.training.average import Average
from headstart.training.metrics import MetricsFile
from headstart.training.optimizer import load_state, state_tensors
from headstart.training.ranks import Ranks
from headstart.training.spreading import gathered


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
class Keeper:
    """Saves a training into its directory, and brings it back from there."""

    directory: Path
    model: Model
    optimizers: list[torch.optim.Optimizer]
    average: Average
    metrics: MetricsFile
    ranks: Ranks
    facts: dict[str, Any]
    tell: Callable[[str], None]

    def save(self, state: LoopState, keep: int) -> None:
        """Write a checkpoint to go on from."""
        state.metrics_bytes, state.average_count = self.metrics.size(), self.average.count
        memory = {**state_tensors(self.model, self.optimizers), **self.average.state_tensors()}
        self._write("checkpoints", state, memory, self.facts, keep)

    def save_best(self, state: LoopState) -> None:
        """Write the weights that are the model's now, as the best so far."""
        self._write("best", state, {}, {}, keep=1)

    def put_best_back(self) -> None:
        """Make the best weights the model's again."""
        best, _ = checkpoint.latest(self.directory / "best")
        if best is not None:
            checkpoint.copy_into(self._weights(), best.model, str(self.directory / "best"))

    def resume(self, steps: int, accumulate: int) -> LoopState:
        """The state of the last good checkpoint, tensors put back; or a new one."""
        found = self._latest()
        if found is None:
            self.metrics.cut_back(0)
            return LoopState(steps=steps, accumulate=accumulate)
        where = str(self.directory / "checkpoints" / f"step-{found.step:08d}")
        try:
            state = LoopState(**found.state)
        except TypeError as error:
            raise IntegrityError(
                f"its state has other fields ({error})", where=where, fix="use the version that wrote it"
            ) from error
        if state.steps < steps:  # more steps than before: the run is extended
            state = replace(state, stopped_early=False)
        state.steps = steps
        checkpoint.copy_into(self._weights(), found.model, where)
        memory = {key: value for key, value in found.optimizer.items() if not key.startswith("average|")}
        load_state(self.model, self.optimizers, memory, where)
        if self.average.kind != "none":
            self.average.load(found.optimizer, state.average_count)
        self.metrics.cut_back(state.metrics_bytes)
        for line in changed_facts(found.manifest, self.facts):
            self.tell(f"not bit-exact from here on: {line}")
        self.tell(f"going on from step {state.step} of {state.steps}")
        return state

    def _weights(self) -> dict[str, torch.nn.Parameter]:
        return dict(self.model.named_parameters())

    def _write(
        self, name: str, state: LoopState, memory: dict[str, torch.Tensor], facts: dict[str, Any], keep: int
    ) -> None:
        weights = gathered(self._weights(), self.ranks.is_first)
        memory = gathered(memory, self.ranks.is_first)

        def write() -> None:
            checkpoint.save(self.directory / name, state.step, weights, memory, asdict(state), facts, keep)

        self.ranks.first(write)

    def _latest(self) -> checkpoint.Checkpoint | None:
        """The last good checkpoint, the same one for all ranks."""
        directory = self.directory / "checkpoints"

        def clean() -> None:
            checkpoint.clean(directory)
            checkpoint.clean(self.directory / "best")

        self.ranks.first(clean)
        found, passed_over = checkpoint.latest(directory)
        step = found.step if found else 0
        if self.ranks.agree(step) != (step,):
            raise UserError(
                "the first rank has newer checkpoints than this one sees",
                where=str(directory),
                fix="--out has to be where all nodes see the same files",
            )
        for line in passed_over:
            self.tell(line)
        return found


def changed_facts(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between the machine that wrote a checkpoint and this one."""
    usual = {"world": "1", "sharded": "no", "compiled": "no"}
    old, new = ({**usual, **facts.get("machine", {})} for facts in (before, now))
    return [
        f"{key} was {old.get(key)}, is {new.get(key)}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
