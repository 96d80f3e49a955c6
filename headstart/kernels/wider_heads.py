"""Attention in heads of a width that a GPU's kernels do not take: zeros make them wider."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from headstart.kernels.attention import attend
from headstart.kernels.constants import KERNEL_MULTIPLE
from headstart.kernels.layers import Linear
from headstart.model.attention import Mask


def needs_wider_heads(x: Tensor, head_width: int) -> bool:
    """Whether a GPU's kernels would refuse the heads as they are."""
    return x.is_cuda and head_width % KERNEL_MULTIPLE > 0


def attend_in_wider_heads(
    x: Tensor, qkv: Linear, output: Linear, widths: Sequence[int], head_width: int, mask: Mask, dropout: float
) -> Tensor:
    """Multi-head attention of x over itself; `widths` are those of all queries, keys and values together."""
    # The zeros stand in the matrices, which are smaller than what they make.
    spare = -head_width % KERNEL_MULTIPLE
    bias = None if qkv.compute_bias is None else _with_zeros(qkv.compute_bias, 0, head_width, spare)
    every = F.linear(x, _with_zeros(qkv.compute_weight, 0, head_width, spare), bias)
    parts = every.split([width // head_width * (head_width + spare) for width in widths], dim=-1)
    query, key, value = (part.unflatten(-1, (-1, head_width + spare)).transpose(1, 2) for part in parts)
    if (shared_by := widths[0] // widths[1]) > 1:
        key, value = (part.repeat_interleave(shared_by, dim=1) for part in (key, value))
    mixed = attend(query, key, value, mask, dropout, scale=head_width**-0.5)  # that of the heads as they were
    weight = _with_zeros(output.compute_weight, 1, head_width, spare)
    return F.linear(mixed.transpose(1, 2).flatten(2), weight, output.compute_bias)


def _with_zeros(tensor: Tensor, dim: int, head_width: int, spare: int) -> Tensor:
    """After the rows (or columns, in dimension 1) of each head so many of zeros."""
    heads = tensor.unflatten(dim, (-1, head_width))
    behind = [0, 0] * (heads.dim() - dim - 2)
    return F.pad(heads, [*behind, 0, spare]).flatten(dim, dim + 1)
