"""bf16 weights: all weights of the blocks rounded in one launch, and all their gradients widened in another.

Autocast rounds a matrix where it is used and widens its gradient where it arises: on a GPU two short kernels for each
matrix and each bias at each step, and a wait between any two. The copies are rounded to the same numbers at the
beginning of a step and get the same gradients, so that a step gives the same to the bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headstart.kernels.layers import Linear


class Bf16Weights:
    """The copies of a model's layers; a step refreshes them first, and collects their gradients after backward."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        layers = [module for module in model.modules() if isinstance(module, Linear)]
        named = [(layer, name) for layer in layers for name in ("weight", "bias")]
        self._named = [(layer, name) for layer, name in named if getattr(layer, name) is not None]
        self._weights: list[Tensor] = [getattr(layer, name) for layer, name in self._named]
        # Leaves, so that each keeps its gradient as it is.
        self._copies = [torch.empty_like(weight, dtype=dtype) for weight in self._weights]
        self.refresh()
        for (layer, name), copy in zip(self._named, self._copies, strict=True):
            setattr(layer, f"{name}_copy", copy)

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights as they are now; a copy learns where its weight does."""
        for copy, weight in zip(self._copies, self._weights, strict=True):
            copy.requires_grad_(weight.requires_grad)
        if self._copies:
            torch._foreach_copy_(self._copies, self._weights)

    @torch.no_grad()
    def collect(self) -> None:
        """Give the gradients to the weights, widened; where one is there already, they are added to it."""
        pairs = zip(self._weights, self._copies, strict=True)
        learnt = [(weight, copy.grad) for weight, copy in pairs if copy.grad is not None]
        if not learnt:
            return
        widened = [torch.empty_like(weight) for weight, _ in learnt]
        torch._foreach_copy_(widened, [gradient for _, gradient in learnt])
        for (weight, _), gradient in zip(learnt, widened, strict=True):
            if weight.grad is None:
                weight.grad = gradient
            else:
                weight.grad += gradient
        self.forget()

    def forget(self) -> None:
        """Drop gradients that were not collected."""
        for copy in self._copies:
            copy.grad = None

    def remove(self) -> None:
        """Let the layers compute with their own weights again."""
        for layer, name in self._named:
            setattr(layer, f"{name}_copy", None)


@contextmanager
def bf16_weights(model: nn.Module, dtype: torch.dtype | None) -> Iterator[Bf16Weights | None]:
    """Within `with`, the layers have copies in this precision; None: they have none."""
    copies = None if dtype is None else Bf16Weights(model, dtype)
    try:
        yield copies
    finally:
        if copies is not None:
            copies.remove()
