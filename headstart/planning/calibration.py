"""What was measured on a machine, kept in the cache directory under what identifies the machine."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import UserError
from headstart.hardware import available_cores, cpu_has_fast_bf16, cpu_name, first_gpu, free_bytes
from headstart.planning import machines
from headstart.planning.machines import Target
from headstart.planning.time import UNITS, Prices, paper_prices
from headstart.planning.workload import ComputePrecision, DeviceKind
from headstart.storage.atomic import atomic_write
from headstart.storage.cache import cache_directory

FORMAT = 2


@dataclass(frozen=True)
class Calibration:
    """Measured prices, and what they hold for."""

    facts: dict[str, str]
    seconds: dict[str, float]
    bandwidth: float
    memory: int  # bytes of the device as a whole
    points: list[dict[str, Any]]  # the steps that were timed: name, seconds as measured and as the prices give
    format: int = FORMAT

    @property
    def prices(self) -> Prices:
        where = self.facts["device"] if self.facts["kind"] == "cuda" else f"{self.facts['threads']} threads"
        return Prices(self.seconds, self.bandwidth, f"a calibration of this machine ({where})", True)

    def save(self) -> Path:
        """Write it atomically; returns where."""
        path = _path(self.facts)
        atomic_write(path, (json.dumps(dataclasses.asdict(self), indent=1) + "\n").encode())
        return path


def facts_of(kind: DeviceKind, device: str, precision: ComputePrecision, threads: int) -> dict[str, str]:
    """What a calibration holds for; on a GPU the CPU's threads do not matter."""
    return {"kind": kind, "device": device, "precision": precision, "threads": str(threads) if kind == "cpu" else ""}


def _path(facts: dict[str, str]) -> Path:
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return cache_directory() / "calibrations" / f"{facts['kind']}-{facts['precision']}-{key}.json"


def load_calibration(facts: dict[str, str]) -> Calibration | None:
    """The calibration for these facts; an unreadable one counts as none: it is made again in seconds."""
    try:
        calibration = Calibration(**json.loads(_path(facts).read_bytes()))
        is_whole = calibration.format == FORMAT and set(calibration.seconds) == set(UNITS)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return calibration if is_whole and calibration.facts == facts else None


def this_cpu(cores: int) -> Target:
    """So many cores of this machine, by their data sheet."""
    target = machines.cpu(cores)
    if cpu_has_fast_bf16():
        fp32 = target.peak["fp32"]
        target = dataclasses.replace(target, peak={"bf16": 2 * fp32, "fp32": fp32})
    return dataclasses.replace(target, memory=free_bytes())


def this_machine(kind: DeviceKind, precision: ComputePrecision | None, threads: int | None) -> tuple[Target, Prices]:
    """The machine that this process runs on, as calibrated, or by its data sheet where it never was."""
    if kind == "cpu":
        cores = threads or available_cores()
        target = this_cpu(cores)
        measured = load_calibration(facts_of("cpu", cpu_name(), precision or target.precision, cores))
    else:
        card = first_gpu()
        if card is None:
            fix = "use --device cpu, or name a card, such as --device rtx4090"
            raise UserError("no CUDA device can be seen here", fix=fix, code="no-device")
        name, memory = card
        known = machines.card_like(name)
        used = precision or (known.precision if known else "fp32")
        measured = load_calibration(facts_of("cuda", name, used, 0))
        if known is None and measured is None:
            fix = "run `headstart plan --calibrate --device cuda` once"
            raise UserError(f"the card {name!r} is in no table", fix=fix, code="unknown-name")
        target = known or machines.CARDS["1060"]
        memory = memory or (measured.memory if measured else target.memory)
        target = dataclasses.replace(target, name=name, title=name, memory=memory)
    return target, measured.prices if measured else paper_prices(target, precision or target.precision)
