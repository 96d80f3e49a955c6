"""torch's layers, each with what is quicker on a device and gives the same."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.kernels.cpu.dropout import AddDropped, Dropped
from headstart.kernels.gpu.gelu import FastGelu, FastGeluTanh


class Linear(nn.Linear):
    """torch's own, but training computes with bf16 copies where there are some (kernels/gpu/bf16_weights.py).

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
    def compute_weight(self) -> Tensor:
        """What to multiply by."""
        copy = self.weight_copy if self.training else None
        return self.weight if copy is None else copy

    @property
    def compute_bias(self) -> Tensor | None:
        """What to add."""
        copy = self.bias_copy if self.training else None
        return self.bias if copy is None else copy

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.compute_weight, self.compute_bias)


class TokenEmbedding(nn.Embedding):
    """A vector for each token; where an optimizer asks for it, with a gradient of the rows in use alone.

    A batch looks up a few hundred rows of perhaps fifty thousand. Where `sparse_rows` is a list, training appends to
    it the numbers of those rows and a copy of them that receives their gradient; the matrix itself receives none.
    """

    sparse_rows: list[tuple[Tensor, Tensor]] | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        is_learning = self.training and torch.is_grad_enabled() and self.weight.requires_grad
        if self.sparse_rows is None or not is_learning:
            return super().forward(tokens)
        rows, row_of = tokens.unique(return_inverse=True)
        part = self.weight.detach()[rows].requires_grad_()
        self.sparse_rows.append((rows, part))
        return F.embedding(row_of, part)


class Dropout(nn.Module):
    """Dropout, on a CPU with masks that are drawn faster than torch's (kernels/cpu/dropout.py)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        return Dropped.apply(x, self.rate) if x.device.type == "cpu" else F.dropout(x, self.rate)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """x, and what dropout leaves of the branch: on a CPU in one pass."""
        if self.training and self.rate and x.device.type == "cpu":
            return AddDropped.apply(x, branch, self.rate)
        return x + self(branch)


def gelu(x: Tensor) -> Tensor:
    """x Φ(x)."""
    return FastGelu.apply(x) if _is_compiled_on_gpu(x) else F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU as GPT-2 has it, by a tanh."""
    return FastGeluTanh.apply(x) if _is_compiled_on_gpu(x) else F.gelu(x, approximate="tanh")


def _is_compiled_on_gpu(x: Tensor) -> bool:
    # Uncompiled, each operation of the fast forms would be one more pass over memory.
    return x.is_cuda and x.dtype != torch.float64 and torch.compiler.is_compiling()
