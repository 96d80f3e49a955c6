"""Muon: momentum whose matrix is made orthogonal before it is taken as a step (Jordan and others, 2024).

The same arithmetic as torch.optim.Muon, for all matrices of one shape at once: a small model has dozens of them, and
one after the other they would cost more in launches than in products. And without asking the device for anything:
the rate may be a tensor, and `found_inf`, where it is set, keeps an update away that must not be made.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
A, B, C = 3.4445, -4.7750, 2.0315  # the polynomial that drives singular values towards 1
ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """Updates matrices alone; groups have `lr` and `weight_decay`."""

    found_inf: Tensor | None = None

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float | Tensor) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "capturable": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for parameters in shapes.values():
                self._update(parameters, group["lr"], group["weight_decay"])

    def _update(self, parameters: list[Tensor], rate: float | Tensor, decay: float) -> None:
        memories = []
        for parameter in parameters:
            memory = self.state[parameter]
            if not memory:
                memory["momentum_buffer"] = torch.zeros_like(parameter)
            memories.append(memory["momentum_buffer"])
        slopes = torch.stack([p.grad for p in parameters if p.grad is not None])
        momentum = torch.stack(memories).lerp_(slopes, 1 - MOMENTUM)
        steps = orthogonal(slopes.lerp_(momentum, MOMENTUM)).to(slopes.dtype)  # Nesterov's look ahead
        rows, columns = parameters[0].shape
        # A tall matrix takes longer steps: each of its outputs then moves as far as those of a square one.
        steps *= rate * max(1.0, rows / columns) ** 0.5
        shrink = 1 - rate * decay
        if self.found_inf is not None:
            skips = self.found_inf > 0
            momentum = torch.where(skips, torch.stack(memories), momentum)
            steps.masked_fill_(skips, 0.0)
            shrink = torch.where(skips, 1.0, shrink)
        torch._foreach_copy_(memories, list(momentum.unbind()))
        torch._foreach_mul_(parameters, shrink)
        torch._foreach_sub_(parameters, list(steps.unbind()))


def orthogonal(matrices: Tensor) -> Tensor:
    """Of each matrix (…, rows, columns) about the nearest one with orthogonal rows or columns, in bf16."""
    x = matrices.bfloat16()
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if is_tall else x
