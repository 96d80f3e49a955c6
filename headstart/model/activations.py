"""The non-linearities; for compiled steps on a GPU GELU in few instructions.

torch's erf and tanh are so many instructions for each number that the GPU would wait for them, and not for its memory.
By the formulas here they are fewer, and the values are no less exact. Uncompiled, each operation would be a pass over
memory of its own; there, and on a CPU, GELU is torch's.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# log₂ Φ(−a), Φ being the normal distribution's share below, as a polynomial in a, the highest power first: fitted to
# the least greatest error from 0 to 6, where Φ is right to 6e-8 and, as small as it gets there, to 0.06 % of itself.
# Beyond, it goes on falling, quicker than the truth, so that huge numbers need no care.
LOG2_SHARE = (
    -9.40129477e-07, 1.62622505e-05, -7.61937473e-05, -3.97675679e-04, 7.38908974e-03, -5.27038733e-02,
    -4.5914858e-01, -1.15111067, -1.0,
)  # fmt: skip
HALF_LOG2_E = 0.7213475204444817
LOG2_HIGHEST = -1.3257480647361592  # of the normal density, which is 1 / √2π at 0
TANH_SLOPE, TANH_CUBIC = 1.5957691216057308, 0.044715  # 2 · √(2/π), and the paper's factor


def gelu(x: Tensor) -> Tensor:
    """x Φ(x)."""
    return LeanGelu.apply(x) if _is_compiled_on_gpu(x) else F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU as GPT-2 has it, by a tanh."""
    return LeanGeluTanh.apply(x) if _is_compiled_on_gpu(x) else F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "silu": F.silu,
    "swiglu": F.silu,  # the gate's
}


def _is_compiled_on_gpu(x: Tensor) -> bool:
    return x.is_cuda and x.dtype != torch.float64 and torch.compiler.is_compiling()


class LeanGelu(torch.autograd.Function):
    """GELU by one exponential, its slope by two; only x is kept for the backward pass, in the numbers it came in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        exact = x.float()
        return (exact * _share_below(exact)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        exact = x.float()
        density = torch.exp2(exact * exact * -HALF_LOG2_E + LOG2_HIGHEST)
        return (slope.float() * (_share_below(exact) + exact * density)).to(x.dtype)


def _share_below(x: Tensor) -> Tensor:
    """Φ(x): what is small is computed, and what is large is 1 less that."""
    size = x.abs()
    log2_share = size * LOG2_SHARE[0] + LOG2_SHARE[1]
    for coefficient in LOG2_SHARE[2:]:
        log2_share = log2_share * size + coefficient
    share = torch.exp2(log2_share)
    return torch.where(x < 0, share, 1 - share)


class LeanGeluTanh(torch.autograd.Function):
    """x (1 + tanh u) / 2 as x σ(2u), which is the same, and one exponential."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        exact = x.float()
        return (exact * _sigmoid(exact)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        exact = x.float()
        share = _sigmoid(exact)
        steepness = TANH_SLOPE + 3 * TANH_SLOPE * TANH_CUBIC * (exact * exact)
        return (slope.float() * (share + exact * (share * (1 - share)) * steepness)).to(x.dtype)


def _sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x * (TANH_SLOPE + TANH_SLOPE * TANH_CUBIC * (x * x)))
