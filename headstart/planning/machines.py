"""Machines to plan for: public peak rates and memories, and the share of them that training reaches.

A card's own sheet gives the peak. No training reaches it, and how near it comes is an assumption, stated with each
machine and overridable (`--utilisation`); a calibration on the machine itself replaces all of it.
"""

import re
from dataclasses import dataclass, replace

from headstart.config.training import MOST_THREADS
from headstart.errors import UserError, nearest
from headstart.planning.workload import ComputePrecision, DeviceKind

GB = 10**9
GIB = 2**30
TERA = 1e12


@dataclass(frozen=True, kw_only=True)
class Target:
    """A machine to plan for."""

    name: str
    title: str
    kind: DeviceKind
    memory: int  # bytes that there are, the driver's share included
    peak: dict[ComputePrecision, float]  # operations a second on paper, by precision; the first is the default
    bandwidth: float  # bytes a second to and from memory, on paper
    utilisation: float  # share of the peak that the products of a training reach
    why: str  # what the utilisation goes by
    cores: int = 0

    @property
    def precision(self) -> ComputePrecision:
        """What `--precision auto` chooses there."""
        return next(iter(self.peak))


_TENSOR_CORES = "40 % of the peak: what well-written trainings of large matrices report on this generation"
_SMALL_TENSOR_CORES = "35 % of the peak: its memory is slow beside its tensor cores"
_NO_FAST_BF16 = "60 % of the peak in fp32: no bf16 on this card, and Headstart does not train in fp16"
_CPU = "50 % of the peak of a core with AVX2 at 3 GHz: products of a training, not of a benchmark"


# The makers' own figures: fp32 without tensor cores (torch's default), bf16 dense with sums in fp32.
_CARDS = (
    # name, title, GB, TFLOPS in fp32 and bf16, GB/s, utilisation, why
    ("h200", "NVIDIA H200", 140, 67, 989, 4800, 0.40, _TENSOR_CORES),
    ("h100", "NVIDIA H100", 80, 67, 989, 3350, 0.40, _TENSOR_CORES),
    ("a100", "NVIDIA A100 80 GB", 80, 19.5, 312, 2039, 0.45, _TENSOR_CORES.replace("40", "45")),
    ("a100-40", "NVIDIA A100 40 GB", 40, 19.5, 312, 1555, 0.45, _TENSOR_CORES.replace("40", "45")),
    ("l4", "NVIDIA L4", 22.5, 30.3, 121, 300, 0.35, _SMALL_TENSOR_CORES),
    ("rtx4090", "NVIDIA RTX 4090", 24, 82.6, 165, 1008, 0.35, _SMALL_TENSOR_CORES),
    ("rtx3090", "NVIDIA RTX 3090", 24, 35.6, 71, 936, 0.40, _TENSOR_CORES),
    ("rtx3060", "NVIDIA RTX 3060 12 GB", 12, 12.7, 25, 360, 0.40, _TENSOR_CORES),
    ("v100", "NVIDIA V100 16 GB", 16, 15.7, 0, 900, 0.60, _NO_FAST_BF16),
    ("t4", "NVIDIA T4", 15, 8.1, 0, 320, 0.45, _NO_FAST_BF16.replace("60", "45")),
    ("1080ti", "NVIDIA GTX 1080 Ti", 11, 11.3, 0, 484, 0.60, _NO_FAST_BF16),
    ("1060", "NVIDIA GTX 1060 6 GB", 6, 4.4, 0, 192, 0.60, _NO_FAST_BF16),
    ("1050ti", "NVIDIA GTX 1050 Ti", 4, 2.1, 0, 112, 0.60, _NO_FAST_BF16),
)

CARDS: dict[str, Target] = {
    name: Target(
        name=name, title=title, kind="cuda", memory=round(gigabytes * GIB), bandwidth=bandwidth * GB,
        peak={"bf16": bf16 * TERA, "fp32": fp32 * TERA} if bf16 else {"fp32": fp32 * TERA},
        utilisation=utilisation, why=why,
    )
    for name, title, gigabytes, fp32, bf16, bandwidth, utilisation, why in _CARDS
}  # fmt: skip

CORE_PEAK = 96e9  # two multiply-adds of eight numbers a cycle, at 3 GHz
CORE_BANDWIDTH, MOST_BANDWIDTH = 10 * GB, 40 * GB
MOST_MEMORY = 1e9  # in GB
CPU_MEMORY = 8 * GIB  # of a machine that one does not have, unless --memory says otherwise


def cpu(cores: int, memory: int = CPU_MEMORY) -> Target:
    """A CPU of so many cores that one does not have."""
    if not 1 <= cores <= MOST_THREADS:
        raise UserError(f"a CPU of {cores:,} cores", fix=f"give 1 to {MOST_THREADS:,}, such as cpu:2")
    return Target(
        name=f"cpu:{cores}", title="1 core" if cores == 1 else f"{cores} cores", kind="cpu", memory=memory,
        peak={"fp32": cores * CORE_PEAK, "bf16": cores * CORE_PEAK / 16},
        bandwidth=min(cores * CORE_BANDWIDTH, MOST_BANDWIDTH), utilisation=0.5, why=_CPU, cores=cores,
    )  # fmt: skip


def named(device: str) -> Target:
    """The machine of a name: a card of the table, or cpu:N."""
    name = device.strip().lower().replace(" ", "").removeprefix("nvidia").removeprefix("geforce")
    name = re.sub(r"^gtx", "", name)
    if name in CARDS:
        return CARDS[name]
    if match := re.fullmatch(r"cpu:(\d+)", name):
        return cpu(int(match[1]))
    close = f"{near}; " if "did you mean" in (near := nearest(name, CARDS)) else ""
    fix = f"{close}give auto, cpu, cuda, cpu:N (such as cpu:2) or one of {', '.join(CARDS)}"
    raise UserError(f"no machine {device!r} is known", fix=fix, code="unknown-name")


def card_like(title: str) -> Target | None:
    """The card of the table that a driver calls so, such as "NVIDIA GeForce GTX 1050 Ti"."""
    plain = re.sub(r"[^a-z0-9]", "", title.lower())
    names = [name for name in CARDS if name.replace("-", "") in plain]
    return CARDS[max(names, key=len)] if names else None


def with_overrides(target: Target, utilisation: float | None, memory: float | None) -> Target:
    """The machine with what the user knows better; memory in GB."""
    if utilisation is not None:
        if not 0 < utilisation <= 1:
            raise UserError(f"a utilisation of {utilisation}", fix="give a share between 0 and 1, such as 0.4")
        target = replace(target, utilisation=utilisation, why=f"{100 * utilisation:.3g} % of the peak, as given")
    if memory is not None:
        if not 0 < memory <= MOST_MEMORY:
            raise UserError(f"a memory of {memory} GB", fix="give a number over 0, such as --memory 8")
        target = replace(target, memory=round(memory * GIB))
    return target
