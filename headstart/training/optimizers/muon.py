"""Muon: momentum whose matrix is made orthogonal before it is taken as a step (Jordan and others, 2024).

The arithmetic is torch.optim.Muon's, for all matrices of one shape at once: a small model has dozens of them, and one
by one they would cost more in launches than in products. Nothing asks the device for a number: the learning rate may
be a tensor, and `found_inf`, where it is set, prevents an update. Matrices that are stacked in one tensor (queries,
keys and values; SwiGLU's two) are made orthogonal together, or each by itself where a group has their `rows`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.kernels.constants import NEWTON_SCHULZ_STEPS

MOMENTUM = 0.95
A, B, C = 3.4445, -4.7750, 2.0315  # the polynomial that drives singular values towards 1
MatrixState = tuple[Tensor, Tensor, Tensor]  # a matrix, its gradient, its momentum


class Muon(torch.optim.Optimizer):
    """Updates matrices alone; groups have `lr` and `weight_decay`, and may have `rows`, of each stacked matrix."""

    found_inf: Tensor | None = None

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float | Tensor) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "rows": (), "capturable": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[MatrixState]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    for part in self._parts(parameter, group["rows"]):
                        shapes.setdefault(part[0].shape, []).append(part)
            for parts in shapes.values():
                self._update(parts, group["lr"], group["weight_decay"])

    def _parts(self, parameter: Tensor, rows: Sequence[int]) -> list[MatrixState]:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        whole = parameter, parameter.grad, state["momentum_buffer"]
        return [whole] if not rows else list(zip(*(one.split(list(rows)) for one in whole), strict=True))

    def _update(self, parts: list[MatrixState], lr: float | Tensor, decay: float) -> None:
        parameters, buffers = [part[0] for part in parts], [part[2] for part in parts]
        grads = torch.stack([part[1] for part in parts])
        momentum = torch.stack(buffers).lerp_(grads, 1 - MOMENTUM)
        steps = orthogonal(grads.lerp_(momentum, MOMENTUM)).to(grads.dtype)  # Nesterov's look ahead
        rows, columns = parameters[0].shape
        # A tall matrix takes longer steps: each of its outputs then moves as far as those of a square one.
        steps *= lr * max(1.0, rows / columns) ** 0.5
        shrink = 1 - lr * decay
        if self.found_inf is not None:
            skips = self.found_inf > 0
            momentum = torch.where(skips, torch.stack(buffers), momentum)
            steps.masked_fill_(skips, 0.0)
            shrink = torch.where(skips, 1.0, shrink)
        torch._foreach_copy_(buffers, list(momentum.unbind()))
        torch._foreach_mul_(parameters, shrink)
        torch._foreach_sub_(parameters, list(steps.unbind()))


def orthogonal(matrices: Tensor) -> Tensor:
    """Of each matrix (…, rows, columns) about the nearest one with orthogonal rows or columns, in bf16."""
    x = matrices.bfloat16()
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if is_tall else x
