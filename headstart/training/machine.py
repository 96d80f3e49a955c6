"""Where and with what numbers to compute: chosen, and explained."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from headstart.errors import UserError
from headstart.training.ranks import ALONE, Ranks

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]
Shard = Literal["auto", "never", "always"]


@dataclass(frozen=True)
class Machine:
    """What a run computes on, and a sentence for each choice."""

    device: torch.device
    precision: Literal["fp32", "bf16"]
    threads: int
    reasons: tuple[str, ...] = ()
    is_fast: bool = False
    """Whether exact repetition is given up where it costs: on a GPU."""

    ranks: Ranks = field(default=ALONE, compare=False)
    shard: Shard = "auto"
    """Whether each of several ranks holds a part of the model alone."""

    @property
    def alone(self) -> "Machine":
        """The same for what one rank does without the others."""
        return replace(self, ranks=ALONE)

    def autocast(self) -> torch.autocast:
        """The context to compute in: products in the chosen precision, sums and weights in fp32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def autocast_steps(self) -> AbstractContextManager[object]:
        """The same for writing token by token: a CPU computes in fp32, whatever was chosen.

        It waits for the weights more than it multiplies, and to convert them at every step takes longer than to use
        them as they are.
        """
        return nullcontext() if self.device.type == "cpu" else self.autocast()

    def prepare(self) -> None:
        """Set torch up for this machine, and unless it was given up for exact repetition."""
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

    @property
    def sums_in(self) -> torch.dtype | None:
        """What residuals are summed up in; None: in fp32, as they come."""
        return torch.bfloat16 if self.is_fast and self.precision == "bf16" else None

    def kernels(self, *, has_one_shape: bool) -> AbstractContextManager[object]:
        """The context to train in: where exactness was given up, attention by the quickest kernel that there is.

        With batches of one shape: for each new one that kernel would have to be made.
        """
        if not self.is_fast or not has_one_shape:
            return nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel

        order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
        return sdpa_kernel([*order, SDPBackend.MATH], set_priority=True)

    def facts(self) -> dict[str, str]:
        """What has to be the same for the same bytes."""
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
    """Look at the machine and choose; what the user asked for is taken, or refused with the reason.

    `fast` gives up exact repetition where it costs, which is on a GPU; `shard` is for several ranks.
    """
    ranks = Ranks.of_environment()
    where, why_where = _device(device)
    numbers, why_numbers = _precision(precision, where)
    count, why_count = _threads(threads, ranks.local_world)
    reasons = [why_where, why_numbers, why_count]
    is_fast = fast and where == "cuda"
    if fast:
        reasons.append(
            "fast: the same command need not give the same bytes" if is_fast else _NOTHING_TO_GIVE_UP
        )
    if ranks.world > 1:
        reasons.append(f"{ranks.world} ranks, {ranks.local_world} of them here, share every batch")
    place = _gpu_of(ranks) if where == "cuda" and ranks.world > 1 else torch.device(where)
    return Machine(place, numbers, count, tuple(reasons), is_fast, ranks, shard)


_NOTHING_TO_GIVE_UP = "exact, although --fast was asked for: on a CPU it costs nothing"


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


def _gpu_of(ranks: Ranks) -> torch.device:
    if ranks.local_world > torch.cuda.device_count():
        raise UserError(
            f"{ranks.local_world} ranks and {torch.cuda.device_count()} GPUs here",
            fix="give torchrun a --nproc-per-node of at most the GPUs, or --device cpu",
        )
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


def cpu_has_fast_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _threads(asked: int | None, processes: int = 1) -> tuple[int, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if asked is None and processes > 1:
        count = max(1, cores // processes)
        return count, f"{count} threads: a rank's share of {cores} cores"
    if asked is None:
        return cores, f"{cores} threads: the cores that this process may use"
    if asked < 1:
        raise UserError(f"threads is {asked}", fix="give 1 or more")
    return asked, f"{asked} threads, as asked"
