"""What a run cost beside what was planned: cost.json.

It is a separate file because result.json is bit-identical however often a run was killed, and times never are.
"""

import resource
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headstart.config.run import RunConfig
from headstart.errors import Code, UserError
from headstart.hardware import cpu_name
from headstart.machine import Machine
from headstart.objectives.objective import Objective
from headstart.planning.calibration import facts_of, load_calibration, this_cpu
from headstart.planning.machines import card_like
from headstart.planning.memory import PROCESS, training_memory
from headstart.planning.time import paper_prices, step_seconds
from headstart.planning.workload import DeviceKind, Lengths, TextLayout, Workload, reading_of
from headstart.runs.directory import RunDirectory
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_write
from headstart.training.step_log import Progress

SAMPLED_BATCHES, BATCHES_WITH_SHAPES = 4, 64
SLOW_STEPS = 3  # the first take longer: memory, caches, a CUDA graph
FILE = "cost.json"


def workloads_of(config: RunConfig, objective: Objective, machine: Machine) -> list[Workload]:
    """The workloads of some of the run's steps, by their actual batches."""
    kind: DeviceKind = "cuda" if machine.device.type == "cuda" else "cpu"
    works, steps = list[Workload](), max(1, config.loop.steps)
    seen = _seen_shapes(config, objective, min(BATCHES_WITH_SHAPES, steps))
    for step in range(min(SAMPLED_BATCHES, steps)):
        batch = objective.batch_at(config.loop.seed, step)
        texts, source = batch["tokens"].shape
        if objective.r_drop:  # each text is read twice
            texts *= 2
        reading: TextLayout = reading_of(config.head.kind)
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
                seen_shapes=seen, counts_vectors=config.embedding_init == "cooccurrence",
            )
        )  # fmt: skip
    return works


def _seen_shapes(config: RunConfig, objective: Objective, steps: int) -> int:
    """How many different lengths documents have in so many batches, or shapes the batches of a translation.

    Labelled texts are not counted: evaluation reads more of them, in more lengths.
    """
    shapes = set[int | tuple[int, ...]]()
    for step in range(steps):
        batch = objective.batch_at(config.loop.seed, step)
        if "documents" in batch:
            rows = ([0, *(np.flatnonzero(np.diff(row)) + 1), len(row)] for row in batch["documents"])
            shapes.update(int(length) for row in rows for length in np.diff(row))
        elif "written" in batch:
            shapes.add((*batch["tokens"].shape, batch["written"].shape[1]))
    return len(shapes)


class Meter:
    """Measures a run: the time of its steps, and the peak of its memory."""

    def __init__(self, config: RunConfig, objective: Objective, machine: Machine) -> None:
        self._machine, self._seconds = machine, list[float]()
        self._works = workloads_of(config, objective, machine)
        self._plan = self._planned()  # now: an error here must not come after a long training
        self._is_restarted, self._peak = _restart_peak(), _peak_bytes()
        if machine.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def on_step(self, progress: Progress) -> None:
        self._seconds.append(progress.seconds)

    def write(self, run: RunDirectory) -> None:
        """Into the run's directory."""
        data = checksummed_json.dump({"planned": self._plan, "measured": self._measured()}, indent=1)
        atomic_write(run.path / FILE, data)

    def _planned(self) -> dict[str, Any]:
        machine, kind = self._machine, self._works[0].device
        name = torch.cuda.get_device_name() if kind == "cuda" else cpu_name()
        calibration = load_calibration(facts_of(kind, name, machine.precision, machine.threads))
        target = card_like(name) if kind == "cuda" else this_cpu(machine.threads)
        if calibration is not None:
            prices = calibration.prices
        elif target is not None:
            prices = paper_prices(target, machine.precision)
        else:
            return {"device": name, "seconds_a_step": None, "memory": None, "by": "no table has this card"}
        seconds = statistics.mean(step_seconds(work, prices).total for work in self._works)
        memory = max(training_memory(work).total for work in self._works)
        return {"device": name, "seconds_a_step": seconds, "memory": memory, "by": prices.source}

    def _measured(self) -> dict[str, Any]:
        steps = self._seconds[SLOW_STEPS:] or self._seconds
        seconds = statistics.median(steps) if steps else None
        return {"seconds_a_step": seconds, "steps": len(self._seconds), "memory": self._memory()}

    def _memory(self) -> int | None:
        """The peak of the whole process on its device; None where it cannot be told from something else."""
        if self._machine.device.type == "cuda":
            free, total = torch.cuda.mem_get_info()
            context = total - free - torch.cuda.memory_reserved()  # of all processes on the GPU
            return torch.cuda.max_memory_allocated() + context if context < 2 * PROCESS["cuda"] else None
        peak = _peak_bytes()
        # Else an earlier run in this process may have had a higher peak.
        return peak if self._is_restarted or peak > self._peak else None


def _restart_peak() -> bool:
    """Let the system count the peak of this process from here on; whether it does."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _peak_bytes() -> int:
    """The most memory that this process had; of a parent's, which getrusage would count too, nothing."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# ---- over all runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunCost:
    """One run: planned beside measured."""

    run: str
    device: str
    planned_seconds: float
    measured_seconds: float | None
    planned_memory: float
    measured_memory: float | None
    seconds_error: float | None
    memory_error: float | None


def read_costs(paths: Iterable[Path]) -> list[RunCost]:
    """The cost of every finished run under these directories."""
    costs = []
    for path in paths:
        if not path.is_dir():
            what = "this is a file" if path.exists() else "there is no such directory"
            code: Code = "not-a-run" if path.exists() else "no-file"
            raise UserError(what, where=path, fix="give a run, or a folder of runs", code=code)
        files = sorted(path.glob(f"**/{FILE}"))
        if not files:
            raise UserError(f"no {FILE} here", where=path, fix="give runs that are finished", code="missing")
        costs += [cost for file in files if (cost := _read_cost(file)) is not None]
    return costs


def _read_cost(file: Path) -> RunCost | None:
    data = checksummed_json.read(file, "delete it; the run itself is not touched")
    planned, measured = data["planned"], data["measured"]
    if planned["seconds_a_step"] is None:
        return None
    keys = ("seconds_a_step", "memory")
    pairs = [(float(planned[key]), measured[key]) for key in keys]
    errors = [paper / real - 1 if real else None for paper, real in pairs]
    return RunCost(str(file.parent), str(planned["device"]), *pairs[0], *pairs[1], *errors)
