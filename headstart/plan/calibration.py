"""What was measured on a machine, kept in the cache directory, and found again by what the machine is."""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import UserError
from headstart.plan import machines
from headstart.plan.free_memory import free_bytes
from headstart.plan.machines import Target, card_like, cores_here, cores_in_words
from headstart.plan.time import UNITS, Prices, paper_prices
from headstart.plan.workload import DeviceKind, Precision
from headstart.text.cache import cache_directory

FORMAT = 2


@dataclass(frozen=True)
class Calibration:
    """Prices that were measured, and by what."""

    facts: dict[str, str]
    seconds: dict[str, float]
    bandwidth: float
    memory: int
    """Bytes of the device as a whole."""

    points: list[dict[str, Any]]
    """The steps that were timed: their name, seconds as measured, and as the prices give them."""

    format: int = FORMAT

    @property
    def prices(self) -> Prices:
        where = self.facts["device"] if self.facts["kind"] == "cuda" else f"{self.facts['threads']} threads"
        return Prices(self.seconds, self.bandwidth, f"a calibration of this machine ({where})", True)

    def save(self) -> Path:
        """Write it, whole or not at all; returns where."""
        path = _path(self.facts)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".tmp-{os.getpid()}")
        aside.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")
        aside.replace(path)
        return path


def facts_of(kind: DeviceKind, device: str, precision: Precision, threads: int) -> dict[str, str]:
    """What a calibration holds for; on a GPU the CPU's threads do not matter."""
    return {
        "kind": kind,
        "device": device,
        "precision": precision,
        "threads": str(threads) if kind == "cpu" else "",
    }


def _path(facts: dict[str, str]) -> Path:
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return cache_directory() / "calibrations" / f"{facts['kind']}-{facts['precision']}-{key}.json"


def found(facts: dict[str, str]) -> Calibration | None:
    """The calibration for these facts; one that cannot be read counts as none: it is made again in seconds."""
    try:
        data = json.loads(_path(facts).read_bytes())
        calibration = Calibration(**data)
        is_whole = calibration.format == FORMAT and set(calibration.seconds) == set(UNITS)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return calibration if is_whole and calibration.facts == facts else None


# ---- this machine, without torch ----------------------------------------------------------------------------


def cpu_name() -> str:
    """What the CPU calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "cpu"
    name = re.search(r"^model name\s*:\s*(.+)$", lines, re.MULTILINE)
    return name[1].strip() if name else "cpu"


def cpu_has_fast_bf16() -> bool:
    """Whether the CPU says that it multiplies bf16 by itself."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return bool(re.search(r"^flags\s*:.*\b(avx512_bf16|amx_bf16)\b", flags, re.MULTILINE))


def cpu_here(cores: int) -> Target:
    """So many cores of this machine, by their sheet."""
    target = dataclasses.replace(machines.cpu(cores), memory=free_bytes(), title=cores_in_words(cores))
    if not cpu_has_fast_bf16():
        return target
    fp32 = target.peak["fp32"]
    return dataclasses.replace(target, peak={"bf16": 2 * fp32, "fp32": fp32})


def gpu_here() -> tuple[str, int] | None:
    """The first NVIDIA card that the driver shows to this process, and its bytes (0: not known)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return None
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
            name, _, mebibytes = done.stdout.splitlines()[0].rpartition(",")
            return name.strip(), int(mebibytes) * 2**20
        except (OSError, subprocess.SubprocessError, IndexError, ValueError):
            pass
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE)
        if model:
            return model[1].strip(), 0
    return None


def this_machine(kind: DeviceKind, precision: Precision | None, threads: int | None) -> tuple[Target, Prices]:
    """The machine that this process runs on, as calibrated, or by its sheet where it never was."""
    if kind == "cpu":
        cores = threads or cores_here()
        target = cpu_here(cores)
        facts = facts_of("cpu", cpu_name(), precision or target.precision, cores)
    else:
        card = gpu_here()
        if card is None:
            raise UserError(
                "no CUDA device can be seen here",
                fix="use --device cpu, or name a card, such as --device rtx4090",
            )
        name, memory = card
        known = card_like(name)
        facts = facts_of("cuda", name, precision or (known.precision if known else "fp32"), 0)
        measured = found(facts)
        if known is None and measured is None:
            raise UserError(
                f"the card {name!r} is in no table", fix="run `headstart plan --calibrate --device cuda` once"
            )
        target = dataclasses.replace(known or machines.CARDS["1060"], name=name, title=name)
        memory = memory or (measured.memory if measured else target.memory)
        target = dataclasses.replace(target, memory=memory)
    measured = found(facts)
    if measured is not None:
        return target, measured.prices
    return target, paper_prices(target, precision or target.precision)
