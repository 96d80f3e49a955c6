"""Dropout; on a CPU with masks of our own.

torch draws its masks there a number at a time, 8 nanoseconds each: a fifth of a training step. Here a generator of 64
bits gives four numbers of 16 bits at once, in half a nanosecond each. It is seeded by torch's own generator, so that
the same seed gives the same masks. The share that is dropped is right to 1 in 65,536, and what is kept is divided by
exactly the share that is kept.
"""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

STEPS = 1 << 16


class Dropout(nn.Module):
    """Sets a share of the numbers to zero while the model is trained, and divides the others by what is kept."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        return _Dropped.apply(x, self.rate) if x.device.type == "cpu" else F.dropout(x, self.rate)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """x, and what dropout leaves of the branch: on a CPU in one pass."""
        if self.training and self.rate and x.device.type == "cpu":
            return _AddDropped.apply(x, branch, self.rate)
        return x + self(branch)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


def kept_share(rate: float) -> float:
    """The share that a mask keeps."""
    return 1 - _dropped_steps(rate) / STEPS


def keep_mask(count: int, rate: float) -> Tensor:
    """As many ones and zeros, (count,) in bytes, a zero with probability `rate`: for tensors on a CPU."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    words = np.random.SFC64(seed).random_raw(-(-count // 4))
    numbers = torch.from_numpy(words.view(np.int16))[:count]
    return torch.ge(numbers, _dropped_steps(rate) - STEPS // 2, out=torch.empty(count, dtype=torch.uint8))


def _dropped_steps(rate: float) -> int:
    return min(round(rate * STEPS), STEPS - 1)


def _mask_for(x: Tensor, rate: float) -> Tensor:
    return keep_mask(math.prod(x.shape), rate).view(x.shape)


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        kept, ctx.scale = _mask_for(x, rate), 1 / kept_share(rate)
        ctx.save_for_backward(kept)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (slopes * kept).mul_(ctx.scale), None


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor, rate: float) -> Tensor:
        kept, ctx.scale, ctx.dtype = _mask_for(branch, rate), 1 / kept_share(rate), branch.dtype
        ctx.save_for_backward(kept)
        return torch.addcmul(x, branch, kept, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        (kept,) = ctx.saved_tensors
        return slopes, (slopes * kept).mul_(ctx.scale).to(ctx.dtype), None
