"""What a run cost beside what was planned: cost.json.

It stands beside result.json, not in it: a result is the same to the byte however often the run was killed, and what a
clock says never is.
"""

import dataclasses
import json
import resource
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headstart.errors import UserError
from headstart.objectives.objective import Objective
from headstart.plan.calibration import cpu_here, cpu_name, facts_of, found
from headstart.plan.machines import card_like
from headstart.plan.memory import LEAST_CLAIMED, training_memory
from headstart.plan.operations import Lengths
from headstart.plan.time import paper_prices, step_seconds
from headstart.plan.workload import DeviceKind, Reading, Workload, reading_of
from headstart.training.loop import Progress
from headstart.training.machine import Machine
from headstart.training.run_directory import RunConfig, RunDirectory, write_whole

SAMPLED_BATCHES = 4
SLOW_STEPS = 3  # the first take longer: memory, caches, a recording
FILE = "cost.json"


def workloads_of(config: RunConfig, objective: Objective, machine: Machine) -> list[Workload]:
    """What some of the run's steps compute, by the batches that they really have."""
    kind: DeviceKind = "cuda" if machine.device.type == "cuda" else "cpu"
    works = []
    for step in range(min(SAMPLED_BATCHES, max(1, config.loop.steps))):
        batch = objective.batch_at(config.loop.seed, step)
        texts, source = batch["tokens"].shape
        if getattr(objective, "r_drop", 0.0):  # each text is read twice
            texts *= 2
        reading: Reading = reading_of(config.head.kind)
        if reading == "packed" and "documents" not in batch:
            reading = "whole"
        document = 0
        if "documents" in batch:  # the changes of document, and each row begins one
            numbers = batch["documents"]
            document = numbers.size // (len(numbers) + int((numbers[:, 1:] != numbers[:, :-1]).sum()))
        if "present" in batch and kind == "cpu":  # padding is left out there
            source = max(1, round(float(batch["present"].mean()) * source))
        works.append(
            Workload(
                config=config.model, head=config.head, batch=texts, device=kind, precision=machine.precision,
                lengths=Lengths(source, batch["written"].shape[1] if "written" in batch else 0), reading=reading,
                document=document, optimizer=config.optimizer.optimizer, accumulate=config.loop.accumulate,
                average=config.loop.average != "none", freeze="base" if config.freeze == "base" else None,
            )
        )  # fmt: skip
    return works


class Meter:
    """Watches a run: what its steps take, and how far memory grows."""

    def __init__(self, config: RunConfig, objective: Objective, machine: Machine) -> None:
        self._machine, self._seconds = machine, list[float]()
        self._works = workloads_of(config, objective, machine)
        self._plan = self._planned()  # now: nothing that is found wrong later may cost a training
        self._resident, self._peak = _resident_bytes(), _peak_bytes()
        if machine.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def on_step(self, progress: Progress) -> None:
        self._seconds.append(progress.seconds)

    def write(self, run: RunDirectory) -> None:
        """Into the run's directory."""
        data = json.dumps({"planned": self._plan, "measured": self._measured()}, indent=1)
        write_whole(run.path / FILE, data.encode() + b"\n")

    def _planned(self) -> dict[str, Any]:
        machine, kind = self._machine, self._works[0].device
        name = torch.cuda.get_device_name() if kind == "cuda" else cpu_name()
        calibration = found(facts_of(kind, name, machine.precision, machine.threads))
        if calibration is not None:
            prices = calibration.prices
        else:
            target = card_like(name) if kind == "cuda" else cpu_here(machine.threads)
            if target is None:
                return {
                    "device": name,
                    "seconds_a_step": None,
                    "memory": None,
                    "by": "no table has this card",
                }
            prices = paper_prices(target, machine.precision)
        seconds = [step_seconds(work, prices).total for work in self._works]
        return {
            "device": name,
            "seconds_a_step": statistics.mean(seconds),
            "memory": max(training_memory(work).total for work in self._works),
            "by": prices.source,
        }

    def _measured(self) -> dict[str, Any]:
        steps = self._seconds[SLOW_STEPS:] or self._seconds
        return {
            "seconds_a_step": statistics.median(steps) if steps else None,
            "steps": len(self._seconds),
            "memory": self._grown(),
        }

    def _grown(self) -> int | None:
        """The peak of this run; None where an earlier one in this process had a higher."""
        if self._machine.device.type == "cuda":
            return torch.cuda.max_memory_allocated()
        peak = _peak_bytes()
        return peak - self._resident if peak > self._peak else None


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return _peak_bytes()
    return pages * resource.getpagesize()


def _peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# ---- over all runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """One run: planned beside measured."""

    run: str
    device: str
    planned_seconds: float
    measured_seconds: float | None
    planned_memory: float
    measured_memory: float | None

    @property
    def seconds_error(self) -> float | None:
        return self.planned_seconds / self.measured_seconds - 1 if self.measured_seconds else None

    @property
    def is_memory_claimed(self) -> bool:
        """Whether the run is of a size at which the plan claims to know its memory."""
        return bool(self.measured_memory) and (self.measured_memory or 0) >= LEAST_CLAIMED

    @property
    def memory_error(self) -> float | None:
        return self.planned_memory / self.measured_memory - 1 if self.measured_memory else None


def checked(paths: Iterable[Path]) -> list[Checked]:
    """Every run under these directories that says what it cost."""
    rows = []
    for path in paths:
        if not path.is_dir():
            what = "this is a file" if path.exists() else "there is no such directory"
            raise UserError(what, where=str(path), fix="give a run, or a folder of runs")
        files = sorted(path.glob(f"**/{FILE}"))
        if not files:
            raise UserError(
                "no run here says what it cost", where=str(path), fix="give runs that are finished"
            )
        rows += [row for file in files if (row := _row(file)) is not None]
    return rows


def _row(file: Path) -> Checked | None:
    try:
        data = json.loads(file.read_bytes())
        planned, measured = data["planned"], data["measured"]
        if planned["seconds_a_step"] is None:
            return None
        return Checked(
            str(file.parent), str(planned["device"]), float(planned["seconds_a_step"]), measured["seconds_a_step"],
            float(planned["memory"]), measured["memory"],
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(
            f"cannot be read ({error})", where=str(file), fix="remove it; the run itself is not touched"
        ) from error


def as_data(rows: list[Checked]) -> list[dict[str, Any]]:
    """The rows with their errors, for JSON."""
    return [
        {**dataclasses.asdict(row), "seconds_error": row.seconds_error, "memory_error": row.memory_error}
        for row in rows
    ]
