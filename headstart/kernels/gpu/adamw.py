"""AdamW on a GPU in a few launches at the speed of its memory: the norm of all gradients, then all tensors at once.

The arithmetic is that of torch's fused AdamW, and the state is kept as torch keeps it. A gradient is read twice, and
multiplied by the mean's and the clip's factor where it is used; torch would write it in between. Sums are added up in
the same order every time.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headstart.kernels.gpu.availability import can_be_made

CHUNK = 2048  # numbers that a program has: so few that a small model keeps all of a GPU's processors busy
WARPS = (4, 8)  # of a sum, and of an update: with half as many, that would need more registers than there are
FACTORS_BLOCK = 128
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


class _Param(NamedTuple):
    """A tensor that AdamW updates, with its gradient, its state and its settings."""

    weight: Tensor
    grad: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor
    lr: Tensor
    weight_decay: float

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What stays where it is from step to step."""
        return self.weight, self.exp_avg, self.exp_avg_sq, self.step, self.lr


class _Tables(NamedTuple):
    """What stays the same from step to step, on the device; chunks of what AdamW updates come first."""

    chunks: Tensor  # (chunks, 2): a tensor's number, and the chunk's number in it
    own_chunks: int
    sizes: Tensor
    pointers: Tensor  # five for each tensor: the addresses of what is kept
    settings: Tensor  # (tensors, 3): the weight decay, and the logarithms of the betas


class Updates:
    """The updates of one AdamW, whose learning rates are tensors; its betas and eps are the same for all."""

    def __init__(self, optimizer: torch.optim.AdamW, chunk: int = CHUNK, warps: tuple[int, int] = WARPS) -> None:
        self._optimizer, self.chunk, self.warps = optimizer, chunk, warps
        # None is ever let go: captured graphs go on reading theirs.
        self._tables: dict[tuple[Any, ...], _Tables] = {}
        self._written: tuple[list[int], Tensor] | None = None

    def next(self, gradients: Sequence[Tensor]) -> "Update | None":
        """The next update; None where kernels do not serve, which is known without asking the device for anything.

        `gradients` are all that count in the norm, those of other optimizers too.
        """
        params = self._params()
        own = {id(param.grad) for param in params}
        others = [gradient for gradient in gradients if id(gradient) not in own]
        if not params or len(params) + len(others) != len(gradients):
            return None
        ordered = [*(param.grad for param in params), *others]
        addresses = [gradient.data_ptr() for gradient in ordered]
        # An empty tensor is at 0, which is a shorter number and another kernel.
        if not _fit(ordered, params[0].weight.device) or not all(addresses):
            return None
        tables = self._tables_for(params, [gradient.numel() for gradient in ordered])
        if tables is None:
            return None
        return Update(self, tables, self._on_device(addresses, params), params, others)

    @property
    def settings(self) -> tuple[float, float, float]:
        group = self._optimizer.param_groups[0]
        return *group["betas"], group["eps"]

    def _params(self) -> list[_Param]:
        """In the order of the groups; a state that is not there yet begins as torch begins it."""
        params: list[_Param] = []
        for group in self._optimizer.param_groups:
            lists: list[list[Tensor]] = [[] for _ in range(6)]
            self._optimizer._init_group(group, *lists)
            weights, grads, exp_avgs, exp_avg_sqs, _, steps = lists
            tensors = zip(weights, grads, exp_avgs, exp_avg_sqs, steps, strict=True)
            params += [_Param(*some, group["lr"], group["weight_decay"]) for some in tensors]
        return params

    def _tables_for(self, params: Sequence[_Param], sizes: Sequence[int]) -> _Tables | None:
        if not all(isinstance(param.lr, Tensor) for param in params):
            return None
        pointers = [tensor.data_ptr() for param in params for tensor in param.kept]
        decays = [param.weight_decay for param in params]
        key = (tuple(pointers), tuple(sizes), tuple(decays), self.settings)
        if key not in self._tables:
            if not _are_kept_alike(params) or _is_capturing(params):
                return None
            self._tables[key] = self._new_tables(params[0].weight.device, pointers, sizes, decays)
        return self._tables[key]

    def _new_tables(
        self, device: torch.device, pointers: Sequence[int], sizes: Sequence[int], decays: Sequence[float]
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
            torch.tensor(pointers).to(device),
            settings.to(device),
        )

    def _on_device(self, addresses: list[int], params: Sequence[_Param]) -> Tensor:
        """Where the gradients are: often where they were before. In a graph they stay, and it writes its own."""
        is_capturing = _is_capturing(params)
        if not is_capturing and self._written is not None and self._written[0] == addresses:
            return self._written[1]
        table = write(addresses, params[0].weight.device)
        if not is_capturing:
            self._written = addresses, table
        return table


def write(addresses: Sequence[int], device: torch.device) -> Tensor:
    """A table of numbers on the device; a captured launch holds them, where a copy would read them again."""
    from headstart.kernels.gpu import adamw_kernel

    table = torch.empty(-(-len(addresses) // ADDRESSES) * ADDRESSES, dtype=torch.int64, device=device)
    with torch.cuda.device_of(table):
        for start in range(0, len(addresses), ADDRESSES):
            some = tuple(addresses[start : start + ADDRESSES])
            # As many in each launch, and all of them alike (aligned, of 64 bits): what a launch is given decides
            # which kernel is compiled, and nothing can be compiled while a graph is captured.
            some += some[:1] * (ADDRESSES - len(some))
            adamw_kernel.write_addresses[(1,)](table[start:], some, num_warps=1)
    return table


@dataclass(frozen=True)
class Update:
    """One update: the norm first, and then AdamW by it; the gradients of `others` are left to their optimizers."""

    updates: Updates
    tables: _Tables
    gradients: Tensor  # their addresses, on the device
    params: Sequence[_Param]
    others: list[Tensor]

    def norm(self) -> Tensor:
        """Of all gradients, as one number in float64."""
        from headstart.kernels.gpu import adamw_kernel

        tables = self.tables
        sums = torch.empty(len(tables.chunks), dtype=torch.float32, device=self.gradients.device)
        if len(sums):
            with torch.cuda.device_of(sums):
                adamw_kernel.sums_of_squares[(len(sums),)](
                    tables.chunks, tables.sizes, self.gradients, sums,
                    BLOCK=self.updates.chunk, num_warps=self.updates.warps[0],
                )  # fmt: skip
        return sums.sum(dtype=torch.float64).sqrt()

    def adamw(self, factor: Tensor, is_taken: Tensor) -> None:
        """Update by gradients times the factor (float32), if it is taken (bool); else nothing changes."""
        from headstart.kernels.gpu import adamw_kernel

        assert factor.dtype == torch.float32
        assert is_taken.dtype == torch.bool
        tables, tensors = self.tables, len(self.params)
        beta1, beta2, eps = self.updates.settings
        factors = torch.empty(tensors, 3, dtype=torch.float32, device=self.gradients.device)
        with torch.cuda.device_of(factors):
            adamw_kernel.next_factors[(-(-tensors // FACTORS_BLOCK),)](
                tables.pointers, tables.settings, factors, is_taken, tensors, BLOCK=FACTORS_BLOCK, num_warps=4
            )
            if tables.own_chunks:
                adamw_kernel.adamw[(tables.own_chunks,)](
                    tables.chunks, tables.sizes, self.gradients, tables.pointers, factors, factor, is_taken,
                    beta1, 1.0 - beta1, beta2, 1.0 - beta2, eps,
                    BLOCK=self.updates.chunk, num_warps=self.updates.warps[1],
                )  # fmt: skip
        torch.autograd.graph.increment_version([param.weight for param in self.params])


def _fit(tensors: Iterable[Tensor], device: torch.device) -> bool:
    """Whether all are in float32, in one piece that begins where it should, and on the device."""
    return all(
        one.dtype == torch.float32
        and one.device == device
        and one.is_contiguous()
        and one.data_ptr() % ALIGNED_BYTES == 0
        for one in tensors
    )


def _are_kept_alike(params: Sequence[_Param]) -> bool:
    device = params[0].weight.device
    scalars = [one for param in params for one in (param.step, param.lr)]
    return (
        _fit([one for param in params for one in (param.weight, param.exp_avg, param.exp_avg_sq)], device)
        and all(one.dtype == torch.float32 and one.device == device for one in scalars)
        and all(param.weight.numel() == param.grad.numel() for param in params)
    )


def _is_capturing(params: Sequence[_Param]) -> bool:
    return params[0].weight.is_cuda and torch.cuda.is_current_stream_capturing()
