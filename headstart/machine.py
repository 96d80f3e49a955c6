"""The device, precision and threads to compute with: chosen, with a reason for each."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from headstart.config.schema import fields_of
from headstart.config.training import Computing, Device, Precision, Shard
from headstart.distributed import ALONE, Ranks
from headstart.errors import UserError
from headstart.hardware import available_cores, cpu_has_fast_bf16


@dataclass(frozen=True)
class Machine:
    """What a run computes on, and a sentence for each choice."""

    device: torch.device
    precision: Literal["fp32", "bf16"]
    threads: int
    reasons: tuple[str, ...] = ()
    is_fast: bool = False  # whether bit-exact repetition is given up where it costs time: on a GPU
    ranks: Ranks = field(default=ALONE, compare=False)
    shard: Shard = "auto"  # whether each of several ranks holds only a part of the model

    @property
    def alone(self) -> "Machine":
        """The same machine for one rank without the others."""
        return replace(self, ranks=ALONE)

    def autocast(self) -> torch.autocast:
        """The context to compute in: matrix products in the chosen precision, sums and weights in fp32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def autocast_steps(self) -> AbstractContextManager[object]:
        """The same for decoding token by token, where a CPU always computes in fp32."""
        # It reads weights there more than it multiplies, and to convert them at every step takes longer.
        return nullcontext() if self.device.type == "cpu" else self.autocast()

    def prepare(self) -> None:
        """Set torch up for this machine, deterministic unless `is_fast`."""
        torch.set_num_threads(self.threads)
        if self.is_fast:
            torch.set_deterministic_debug_mode("default")
            return
        if self.device.type == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # The same flag as use_deterministic_algorithms(True), which imports the compiler: a second and a half.
        torch.set_deterministic_debug_mode("error")
        # Filling memory before it is written guards against bugs, not against chance, and costs time at every step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def facts(self) -> dict[str, str]:
        """What must stay the same for bit-identical weights."""
        return {
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "precision": self.precision,
            "threads": str(self.threads),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "world": str(self.ranks.world),
            **({"exact": "no, --fast"} if self.is_fast else {}),
        }


def choose(
    device: Device = "auto",
    precision: Precision = "auto",
    threads: int | None = None,
    *,
    fast: bool = False,
    shard: Shard = "auto",
) -> Machine:
    """Choose by what the machine has; what the user asked for is used, or refused with the reason."""
    ranks = Ranks.of_environment()
    kind, why_device = _device(device)
    number_format, why_precision = _precision(precision, kind)
    count, why_threads = _threads(threads, ranks.local_world)
    reasons = [why_device, why_precision, why_threads]
    is_fast = fast and kind == "cuda"
    if fast:
        exact = "exact, although --fast was asked for: on a CPU it costs nothing"
        reasons.append("fast: the same command need not give the same bytes" if is_fast else exact)
    if ranks.world > 1:
        reasons.append(f"{ranks.world} ranks, {ranks.local_world} of them here, share every batch")
    own = _gpu_of(ranks) if kind == "cuda" and ranks.world > 1 else torch.device(kind)
    return Machine(own, number_format, count, tuple(reasons), is_fast, ranks, shard)


def _device(asked: Device) -> tuple[str, str]:
    if asked == "cpu":
        return "cpu", "cpu, as asked"
    if torch.cuda.is_available():
        return "cuda", f"cuda: {torch.cuda.get_device_name()}"
    if asked == "cuda":
        fix = "use --device=cpu, or look at `headstart doctor`"
        raise UserError("no CUDA device can be used here", fix=fix, code="no-device")
    return "cpu", "cpu: no CUDA device can be used here"


def _gpu_of(ranks: Ranks) -> torch.device:
    if ranks.local_world > torch.cuda.device_count():
        what = f"{ranks.local_world} ranks and {torch.cuda.device_count()} GPUs here"
        fix = "give torchrun a --nproc-per-node of at most the GPUs, or --device=cpu"
        raise UserError(what, fix=fix, code="no-device")
    return torch.device("cuda", ranks.local_rank)


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


def _threads(asked: int | None, processes: int) -> tuple[int, str]:
    cores = available_cores()
    if asked is None and processes > 1:
        count = max(1, cores // processes)
        return count, f"{count} threads: a rank's share of {cores} cores"
    if asked is None:
        return cores, f"{cores} threads: the cores that this process may use"
    asked = fields_of(Computing)["threads"].checked(asked)
    return asked, f"{asked} threads, as asked"
