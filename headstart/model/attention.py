"""Multi-head attention: of a text over itself, or of y over x; fast, or slowly with its weights shown."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.model.cut_attention import attend_within
from headstart.model.dropped_attention import attend_with_dropout
from headstart.model.linear import Linear
from headstart.model.masks import Mask, subsequent_mask
from headstart.model.positions import Rotation
from headstart.model.presets import ModelConfig

FEW_QUERIES = 8
KERNEL_MULTIPLE = 8  # a GPU's kernels want heads of a multiple of it


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """Weighted means of the values, (batch, heads, queries, head width); zeros where nothing may be seen.

    `scale` is for heads that were made wider on a GPU: there it is not that of their width.
    """
    if dropout and query.device.type == "cpu":
        return attend_with_dropout(query, key, value, mask, dropout)
    if mask.cuts is not None:
        return attend_within(query, key, value, mask.cuts, mask.causal_square, dropout, scale)
    if not dropout and _is_quicker_by_the_book(query, mask):
        return attend_with_weights(query, key, value, mask)[0]
    mixed = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask.allowed,
        is_causal=mask.causal_square,
        dropout_p=dropout,
        scale=scale,
    )
    return mixed if mask.sees_nothing is None else mixed.masked_fill(mask.sees_nothing, 0.0)


def _is_quicker_by_the_book(query: Tensor, mask: Mask) -> bool:
    """A decoder's step on a CPU: the kernel works in blocks of many queries, and takes twice as long for a few."""
    return (
        query.device.type == "cpu"
        and query.shape[-2] <= FEW_QUERIES
        and query.dtype in (torch.float32, torch.float64)
        and not mask.causal_square
        and not torch.is_grad_enabled()
    )


def attend_with_weights(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """The same by the book, and the weights (batch, heads, queries, keys): the reference and the viewer's path."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    allowed = subsequent_mask(query.shape[-2], query.device) if mask.causal_square else mask.allowed
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    weights = scores.softmax(dim=-1)
    if mask.sees_nothing is not None:
        weights = weights.masked_fill(mask.sees_nothing, 0.0)
    return weights @ value, weights


class LayerCache:
    """The keys and values that one attention layer has seen, in a buffer that doubles when it is full."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.length = 0

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append, and return all that is held, (batch, heads, length, head width)."""
        total = self.length + key.shape[2]
        self.keys = self._room(self.keys, key, total)
        self.values = self._room(self.values, value, total)
        self.keys.narrow(2, self.length, key.shape[2]).copy_(key)
        self.values.narrow(2, self.length, key.shape[2]).copy_(value)
        self.length = total
        return self.keys.narrow(2, 0, total), self.values.narrow(2, 0, total)

    def _room(self, buffer: Tensor | None, like: Tensor, total: int) -> Tensor:
        if buffer is not None and buffer.shape[2] >= total:
            return buffer
        batch, heads, _, head_width = like.shape
        larger = like.new_empty(batch, heads, max(2 * total, 64), head_width)
        if buffer is not None:
            larger[:, :, : self.length] = buffer[:, :, : self.length]
        return larger

    def held(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order: a beam is reordered, a finished text leaves."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class Attention(nn.Module):
    """Multi-head attention with one matrix for queries, keys and values, and one for the output.

    Heads may share keys and values in groups (`kv_heads`): less to remember, and to compute.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_width, self.dropout = config.width // config.heads, config.attention_dropout
        self.widths = [config.width, config.kv_width, config.kv_width]
        self.shared_by = config.heads // (config.kv_heads or config.heads)  # heads to one of keys and values
        self.qkv = Linear(config.width, sum(self.widths), bias=config.bias)
        self.output = Linear(config.width, config.width, bias=config.bias)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        *,
        memory: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Attention of x over itself, or over `memory`; `record`, a list, receives the weights (slow path)."""
        is_plain = memory is None and rotation is None and cache is None and record is None
        if is_plain and x.is_cuda and self.head_width % KERNEL_MULTIPLE:
            return self.in_wider_heads(x, mask)
        query, key, value = self._project(x, memory, rotation, cache)
        if self.shared_by > 1:  # after the cache, which so stays small
            key, value = (part.repeat_interleave(self.shared_by, dim=1) for part in (key, value))
        if record is None:
            mixed = attend(query, key, value, mask, self.dropout if self.training else 0.0)
        else:
            mixed, weights = attend_with_weights(query, key, value, mask)
            record.append(weights)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def in_wider_heads(self, x: Tensor, mask: Mask) -> Tensor:
        """The same with zeros up to a width that kernels take: in the matrices, which are less than what they make."""
        spare = -self.head_width % KERNEL_MULTIPLE
        width, dropout = self.head_width + spare, self.dropout if self.training else 0.0
        shift = self.qkv.shift
        bias = None if shift is None else _with_zeros(shift, 0, self.head_width, spare)
        every = F.linear(x, _with_zeros(self.qkv.matrix, 0, self.head_width, spare), bias)
        parts = every.split([part // self.head_width * width for part in self.widths], dim=-1)
        query, key, value = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part in parts)
        if self.shared_by > 1:
            key, value = (part.repeat_interleave(self.shared_by, dim=1) for part in (key, value))
        mixed = attend(query, key, value, mask, dropout, scale=self.head_width**-0.5)
        output = _with_zeros(self.output.matrix, 1, self.head_width, spare)
        return F.linear(mixed.transpose(1, 2).flatten(2), output, self.output.shift)

    def _project(
        self, x: Tensor, memory: Tensor | None, rotation: Rotation | None, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if memory is not None:
            return self._project_cross(x, memory, cache)
        query, key, value = (self._split(part) for part in self.qkv(x).split(self.widths, dim=-1))
        if rotation is not None:
            query, key = rotation(query), rotation(key)
        if cache is not None:
            key, value = cache.extend(key, value)
        return query, key, value

    def _project_cross(
        self, y: Tensor, memory: Tensor, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries from y; keys and values from the memory, computed once where there is a cache."""
        width, bias = y.shape[-1], self.qkv.shift
        query = F.linear(y, self.qkv.matrix[:width], None if bias is None else bias[:width])
        if cache is not None and cache.length:
            return self._split(query), *cache.held()
        both = F.linear(memory, self.qkv.matrix[width:], None if bias is None else bias[width:])
        key, value = (self._split(part) for part in both.chunk(2, dim=-1))
        if cache is not None:
            key, value = cache.extend(key, value)
        return self._split(query), key, value

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)  # (batch, heads, length, head width)


def _with_zeros(tensor: Tensor, dim: int, head_width: int, spare: int) -> Tensor:
    """After the rows (or columns, in dimension 1) of each head so many of zeros."""
    heads = tensor.unflatten(dim, (-1, head_width))
    behind = [0, 0] * (heads.dim() - dim - 2)
    return F.pad(heads, [*behind, 0, spare]).flatten(dim, dim + 1)
