"""Where and with what numbers to compute: chosen, and explained."""

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from headstart.errors import UserError

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True)
class Machine:
    """What a run computes on, and a sentence for each choice."""

    device: torch.device
    precision: Literal["fp32", "bf16"]
    threads: int
    reasons: tuple[str, ...] = ()

    def autocast(self) -> torch.autocast:
        """The context to compute in: products in the chosen precision, sums and weights in fp32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def prepare(self) -> None:
        """Set torch up for exact repetition on this machine."""
        torch.set_num_threads(self.threads)
        if self.device.type == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # The same flag as use_deterministic_algorithms(True), which imports the compiler: a second and a half.
        torch.set_deterministic_debug_mode("error")
        # Filling memory before it is written guards against bugs, not against chance, and costs time at every step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def facts(self) -> dict[str, str]:
        """What has to be the same for the same bytes."""
        return {
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "precision": self.precision,
            "threads": str(self.threads),
            "torch": torch.__version__,
            "numpy": np.__version__,
        }


def choose(device: Device = "auto", precision: Precision = "auto", threads: int | None = None) -> Machine:
    """Look at the machine and choose; what the user asked for is taken, or refused with the reason."""
    where, why_where = _device(device)
    numbers, why_numbers = _precision(precision, where)
    count, why_count = _threads(threads)
    return Machine(torch.device(where), numbers, count, (why_where, why_numbers, why_count))


def _device(asked: Device) -> tuple[str, str]:
    if asked == "cpu":
        return "cpu", "cpu, as asked"
    if torch.cuda.is_available():
        return "cuda", f"cuda: {torch.cuda.get_device_name()}"
    if asked == "cuda":
        raise UserError(
            "no CUDA device can be used here", fix="use --device cpu, or look at `headstart doctor`"
        )
    return "cpu", "cpu: no CUDA device can be used here"


def _precision(asked: Precision, device: str) -> tuple[Literal["fp32", "bf16"], str]:
    if asked != "auto":
        return asked, f"{asked}, as asked"
    if device == "cuda":
        if torch.cuda.get_device_capability() >= (8, 0):
            return "bf16", "bf16: this GPU multiplies it several times faster than fp32"
        return "fp32", "fp32: this GPU has no fast bf16"
    if cpu_has_fast_bf16():
        return "bf16", "bf16: this CPU has instructions for it"
    return "fp32", "fp32: this CPU has no instructions for bf16, which would be many times slower"


def cpu_has_fast_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _threads(asked: int | None) -> tuple[int, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if asked is None:
        return cores, f"{cores} threads: the cores that this process may use"
    if asked < 1:
        raise UserError(f"threads is {asked}", fix="give 1 or more")
    return asked, f"{asked} threads, as asked"
