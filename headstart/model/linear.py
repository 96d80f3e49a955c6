"""A layer that may have a working copy: its matrix and bias in the numbers that products are made in."""

import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """torch's own, but training computes with the copies where there are some (training/working_copies.py).

    A copy is no parameter and is never saved; it has the gradient that the parameter would have.
    """

    weight_copy: Tensor | None
    bias_copy: Tensor | None

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias=bias)
        # As buffers, compiled code knows their shapes as it knows a parameter's.
        self.register_buffer("weight_copy", None, persistent=False)
        self.register_buffer("bias_copy", None, persistent=False)

    @property
    def matrix(self) -> Tensor:
        """What to multiply by."""
        copy = self.weight_copy if self.training else None
        return self.weight if copy is None else copy

    @property
    def shift(self) -> Tensor | None:
        """What to add."""
        copy = self.bias_copy if self.training else None
        return self.bias if copy is None else copy

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.matrix, self.shift)
