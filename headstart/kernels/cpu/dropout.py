"""Dropout on a CPU with masks that are drawn faster than torch draws them.

torch draws its masks there a number at a time, 8 nanoseconds each: a fifth of a training step. Here a generator of 64
bits gives four numbers of 16 bits at once, in half a nanosecond each. It is seeded by torch's own generator, so that
the same seed gives the same masks. The share that is dropped is right to 1 in 65,536, and what is kept is divided by
exactly the share that is kept.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

STEPS = 1 << 16


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


class Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        kept, ctx.scale = keep_mask(x.numel(), rate).view(x.shape), 1 / kept_share(rate)
        ctx.save_for_backward(kept)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (grad * kept).mul_(ctx.scale), None


class AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor, rate: float) -> Tensor:
        kept = keep_mask(branch.numel(), rate).view(branch.shape)
        ctx.scale, ctx.dtype = 1 / kept_share(rate), branch.dtype
        ctx.save_for_backward(kept)
        return torch.addcmul(x, branch, kept, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (kept,) = ctx.saved_tensors
        return grad, (grad * kept).mul_(ctx.scale).to(ctx.dtype), None
