"""AdamW on a GPU in a few launches at the speed of its memory: the norm of all gradients, then all tensors at once.

The arithmetic is that of torch's fused AdamW, and what is remembered is kept as torch keeps it. A gradient is read
twice, and multiplied by the mean's and the clip's factor where it is used; torch would write it in between. Sums are
added up in the same order every time.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headstart.model.gpu_kernels import can_be_made

CHUNK = 2048  # numbers that a program has: so few that a small model keeps all of a GPU's processors busy
SUM_WARPS, UPDATE_WARPS = 4, 8  # an update by half as many threads would need more registers than there are
RATES_BLOCK = 128
ADDRESSES = 64  # that one launch writes
ALIGNED_BYTES = 16


@functools.cache
def is_available() -> bool:
    """Whether the kernels can be made here."""
    return can_be_made(_try_out, "weights are updated")


def _try_out(device: torch.device) -> None:
    weight = torch.zeros(1, device=device, requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.AdamW([weight], lr=torch.zeros((), device=device), fused=True, capturable=True)
    update = Updates(optimizer).next([weight.grad])
    assert update is not None
    update.adamw(update.norm().float(), torch.ones((), dtype=torch.bool, device=device))


class _Own(NamedTuple):
    """A tensor that AdamW updates: its weights, gradient and memories, its count of steps, its rate and decay."""

    weight: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    steps: Tensor
    rate: Tensor
    decay: float

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What stays where it is from step to step."""
        return self.weight, self.mean, self.square, self.steps, self.rate


@dataclass(frozen=True)
class _Tables:
    """What stays the same from step to step, on the device; chunks of what AdamW updates come first."""

    chunks: Tensor  # (chunks, 2): a tensor's number, and the chunk's number in it
    own_chunks: int
    sizes: Tensor
    places: Tensor  # five for each tensor: the addresses of what is kept
    settings: Tensor  # (tensors, 3): the decay, and the logarithms of the betas


class Updates:
    """The updates of one AdamW, whose rates are tensors; its betas and eps are the same for all."""

    def __init__(
        self,
        optimizer: torch.optim.AdamW,
        chunk: int = CHUNK,
        warps: tuple[int, int] = (SUM_WARPS, UPDATE_WARPS),
    ) -> None:
        self._optimizer, self.chunk, self.warps = optimizer, chunk, warps
        # None is ever let go: recorded steps go on reading theirs.
        self._tables: dict[tuple[Any, ...], _Tables] = {}
        self._written: tuple[list[int], Tensor] | None = None

    def next(self, gradients: Sequence[Tensor]) -> "Update | None":
        """The next update; None where kernels do not serve, which is known without asking the device for anything.

        `gradients` are all that count in the norm, those of other optimizers too.
        """
        own = self._own()
        theirs = {id(tensor.gradient) for tensor in own}
        others = [gradient for gradient in gradients if id(gradient) not in theirs]
        if not own or len(own) + len(others) != len(gradients):
            return None
        ordered = [*(tensor.gradient for tensor in own), *others]
        addresses = [gradient.data_ptr() for gradient in ordered]
        # An empty tensor is at 0, which is a shorter number and another kernel.
        if not _fit(ordered, own[0].weight.device) or not all(addresses):
            return None
        tables = self._tables_for(own, [gradient.numel() for gradient in ordered])
        return None if tables is None else Update(self, tables, self._on_device(addresses, own), own, others)

    @property
    def settings(self) -> tuple[float, float, float]:
        group = self._optimizer.param_groups[0]
        return *group["betas"], group["eps"]

    def _own(self) -> list[_Own]:
        """In the order of the groups; a memory that is not there yet begins as torch begins it."""
        own: list[_Own] = []
        for group in self._optimizer.param_groups:
            lists: list[list[Tensor]] = [[] for _ in range(6)]
            self._optimizer._init_group(group, *lists)
            weights, gradients, means, squares, _, steps = lists
            found = zip(weights, gradients, means, squares, steps, strict=True)
            own += [_Own(*tensors, group["lr"], group["weight_decay"]) for tensors in found]
        return own

    def _tables_for(self, own: Sequence[_Own], sizes: Sequence[int]) -> _Tables | None:
        if not all(isinstance(tensor.rate, Tensor) for tensor in own):
            return None
        places = [one.data_ptr() for tensor in own for one in tensor.kept]
        decays = [tensor.decay for tensor in own]
        key = (tuple(places), tuple(sizes), tuple(decays), self.settings)
        if key not in self._tables:
            if not _are_kept_alike(own) or _is_recording(own):
                return None
            self._tables[key] = self._new_tables(own[0].weight.device, places, sizes, decays)
        return self._tables[key]

    def _new_tables(
        self, device: torch.device, places: Sequence[int], sizes: Sequence[int], decays: Sequence[float]
    ) -> _Tables:
        counts = [-(-size // self.chunk) for size in sizes]
        tensor_of_chunk = torch.arange(len(sizes)).repeat_interleave(torch.tensor(counts))
        chunk_in_tensor = torch.cat([torch.arange(count) for count in counts])
        settings = torch.tensor([(decay, *self.settings[:2]) for decay in decays], dtype=torch.float64)
        settings[:, 1:].log2_()
        return _Tables(
            torch.stack([tensor_of_chunk, chunk_in_tensor], dim=1).int().to(device),
            sum(counts[: len(decays)]),
            torch.tensor(sizes).to(device),
            torch.tensor(places).to(device),
            settings.to(device),
        )

    def _on_device(self, addresses: list[int], own: Sequence[_Own]) -> Tensor:
        """Where the gradients are: often where they were before. In a recording they stay, and it writes its own."""
        device, is_recording = own[0].weight.device, _is_recording(own)
        if not is_recording and self._written is not None and self._written[0] == addresses:
            return self._written[1]
        table = write(addresses, device)
        if not is_recording:
            self._written = addresses, table
        return table


def write(addresses: Sequence[int], device: torch.device) -> Tensor:
    """A table of numbers on the device; a recorded launch holds them, where a copy would read them again."""
    from headstart.training import gpu_update_kernel  # imports triton, which is not everywhere

    table = torch.empty(-(-len(addresses) // ADDRESSES) * ADDRESSES, dtype=torch.int64, device=device)
    with torch.cuda.device_of(table):
        for start in range(0, len(addresses), ADDRESSES):
            some = tuple(addresses[start : start + ADDRESSES])
            # As many in each launch, and all of them alike (aligned, of 64 bits): what a launch is given decides
            # which kernel is compiled, and a recording is no time to compile one.
            some += some[:1] * (ADDRESSES - len(some))
            gpu_update_kernel.write_addresses[(1,)](table[start:], some, num_warps=1)
    return table


class Update:
    """One update: the norm first, and then AdamW by it; the gradients of `others` are left to their optimizers."""

    def __init__(
        self,
        updates: Updates,
        tables: _Tables,
        gradients: Tensor,
        own: Sequence[_Own],
        others: list[Tensor],
    ) -> None:
        from headstart.training import gpu_update_kernel

        self._kernels, self._updates, self._tables = gpu_update_kernel, updates, tables
        self._gradients, self._own, self.others = gradients, own, others
        self._device = gradients.device

    def norm(self) -> Tensor:
        """Of all gradients, as one number in float64."""
        tables = self._tables
        sums = torch.empty(len(tables.chunks), dtype=torch.float32, device=self._device)
        if len(sums):
            with torch.cuda.device_of(sums):
                self._kernels.sums_of_squares[(len(sums),)](
                    tables.chunks, tables.sizes, self._gradients, sums,
                    BLOCK=self._updates.chunk, num_warps=self._updates.warps[0],
                )  # fmt: skip
        return sums.sum(dtype=torch.float64).sqrt()

    def adamw(self, factor: Tensor, is_taken: Tensor) -> None:
        """Update by gradients times the factor (float32), if it is taken (bool); else nothing changes."""
        assert factor.dtype == torch.float32
        assert is_taken.dtype == torch.bool
        tables, tensors = self._tables, len(self._own)
        beta1, beta2, eps = self._updates.settings
        rates = torch.empty(tensors, 3, dtype=torch.float32, device=self._device)
        with torch.cuda.device_of(rates):
            self._kernels.next_rates[(-(-tensors // RATES_BLOCK),)](
                tables.places, tables.settings, rates, is_taken, tensors, BLOCK=RATES_BLOCK, num_warps=4
            )
            if tables.own_chunks:
                self._kernels.adamw[(tables.own_chunks,)](
                    tables.chunks, tables.sizes, self._gradients, tables.places, rates, factor, is_taken,
                    beta1, 1.0 - beta1, beta2, 1.0 - beta2, eps,
                    BLOCK=self._updates.chunk, num_warps=self._updates.warps[1],
                )  # fmt: skip
        torch.autograd.graph.increment_version([tensor.weight for tensor in self._own])


def _fit(tensors: Iterable[Tensor], device: torch.device) -> bool:
    """Whether all are in float32, in one piece that begins where it should, and on the device."""
    return all(
        one.dtype == torch.float32
        and one.device == device
        and one.is_contiguous()
        and one.data_ptr() % ALIGNED_BYTES == 0
        for one in tensors
    )


def _are_kept_alike(own: Sequence[_Own]) -> bool:
    device = own[0].weight.device
    numbers = [one for tensor in own for one in (tensor.steps, tensor.rate)]
    return (
        _fit([one for tensor in own for one in (tensor.weight, tensor.mean, tensor.square)], device)
        and all(one.dtype == torch.float32 and one.device == device for one in numbers)
        and all(tensor.weight.numel() == tensor.gradient.numel() for tensor in own)
    )


def _is_recording(own: Sequence[_Own]) -> bool:
    return own[0].weight.is_cuda and torch.cuda.is_current_stream_capturing()
