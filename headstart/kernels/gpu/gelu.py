"""GELU in few instructions, for compiled steps on a GPU.

torch's erf and tanh are so many instructions for each number that the GPU would wait for them, and not for its memory.
By the formulas here they are fewer, and the values are no less exact.
"""

from typing import Any

import torch
from torch import Tensor

# log₂ Φ(−a), Φ being the normal distribution function, as a polynomial in a, the highest power first: fitted to the
# least greatest error from 0 to 6, where Φ is right to 6e-8 and, as small as it gets there, to 0.06 % of itself.
# Beyond, it goes on falling, quicker than the truth, so that huge numbers need no care.
LOG2_PHI = (
    -9.40129477e-07, 1.62622505e-05, -7.61937473e-05, -3.97675679e-04, 7.38908974e-03, -5.27038733e-02,
    -4.5914858e-01, -1.15111067, -1.0,
)  # fmt: skip

HALF_LOG2_E = 0.7213475204444817
LOG2_HIGHEST = -1.3257480647361592  # of the normal density, which is 1 / √2π at 0
TANH_LINEAR, TANH_CUBIC = 1.5957691216057308, 0.044715  # 2 · √(2/π), and the paper's factor


class FastGelu(torch.autograd.Function):
    """GELU by one exponential, its gradient by two; only x is kept for backward, in the precision it came in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        exact = x.float()
        return (exact * _phi(exact)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        exact = x.float()
        density = torch.exp2(exact * exact * -HALF_LOG2_E + LOG2_HIGHEST)
        return (grad.float() * (_phi(exact) + exact * density)).to(x.dtype)


def _phi(x: Tensor) -> Tensor:
    """Φ(x): what is small is computed, and what is large is 1 less that."""
    size = x.abs()
    log2_phi = size * LOG2_PHI[0] + LOG2_PHI[1]
    for coefficient in LOG2_PHI[2:]:
        log2_phi = log2_phi * size + coefficient
    phi = torch.exp2(log2_phi)
    return torch.where(x < 0, phi, 1 - phi)


class FastGeluTanh(torch.autograd.Function):
    """x (1 + tanh u) / 2 as x σ(2u), which is the same, and one exponential."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        exact = x.float()
        return (exact * _sigmoid(exact)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        exact = x.float()
        sigmoid = _sigmoid(exact)
        slope = TANH_LINEAR + 3 * TANH_LINEAR * TANH_CUBIC * (exact * exact)
        return (grad.float() * (sigmoid + exact * (sigmoid * (1 - sigmoid)) * slope)).to(x.dtype)


def _sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x * (TANH_LINEAR + TANH_LINEAR * TANH_CUBIC * (x * x)))
