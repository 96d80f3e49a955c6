"""Attention with dropout on its weights, on a CPU, where torch has no kernel for it.

torch goes by the book there: ten passes over squares of which a causal text needs half. Here queries are taken a
stretch at a time, each with the keys that it may see and no others, text by text; what is kept for the way back are
the weights and, in a byte each, which of them were dropped.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.kernels.constants import STRETCH
from headstart.kernels.cpu.dropout import keep_mask, kept_share
from headstart.model.attention import Mask


def attend_with_dropout(query: Tensor, key: Tensor, value: Tensor, mask: Mask, rate: float) -> Tensor:
    """Weighted means of the values, (batch, heads, queries, head width), some of the weights dropped."""
    squares = [_Square(slice(0, query.shape[2]), slice(0, key.shape[2]))]
    causal = mask.causal_square
    if mask.varlen is not None and query.shape[2] != key.shape[2]:  # one query a text
        causal, spans = False, mask.varlen.spans[: query.shape[2]]
        squares = [_Square(slice(number, number + 1), span) for number, span in enumerate(spans)]
    elif mask.varlen is not None or causal:
        ends = (query.shape[2],) if mask.varlen is None else mask.varlen.ends
        squares = list(_squares(ends, causal))
    dtype = query.dtype
    if mask.varlen is not None and dtype == torch.bfloat16:
        # Each text has its own length, and products in bf16 are compiled for each shape that comes.
        query, key, value = query.float(), key.float(), value.float()
    with torch.autocast("cpu", enabled=False):
        mixed: Tensor = _Attention.apply(query, key, value, mask.allowed, squares, causal, rate).to(dtype)
    return mixed if mask.sees_nothing is None else mixed.masked_fill(mask.sees_nothing, 0.0)


class _Square(NamedTuple):
    """Some queries and the keys that they see: of a causal text, up to the last of the queries."""

    queries: slice
    keys: slice

    @property
    def numbers(self) -> int:
        return (self.queries.stop - self.queries.start) * (self.keys.stop - self.keys.start)


def _squares(ends: Sequence[int], causal: bool) -> Iterator[_Square]:
    for first, end in itertools.pairwise((0, *ends)):
        for start in range(first, end, STRETCH if causal else max(1, end - first)):
            stop = min(start + STRETCH, end) if causal else end
            yield _Square(slice(start, stop), slice(first, stop))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        squares: list[_Square],
        causal: bool,
        rate: float,
    ) -> Tensor:
        shape, heads = query.shape, query.shape[1]
        # A head is as good as a text: three dimensions, without gaps, are what multiplies fastest.
        query = (query * shape[-1] ** -0.5).flatten(0, 1)
        key, value = (part.contiguous().flatten(0, 1) for part in (key, value))
        mixed = torch.empty_like(query)
        kept = keep_mask(len(query) * sum(square.numbers for square in squares), rate)
        future = _minus_infinity(torch.ones(STRETCH, STRETCH, dtype=torch.bool).triu(1), query.dtype)
        closed = None if allowed is None else _minus_infinity(~allowed, query.dtype)
        kept_parts, weights_parts, used = [], [], 0
        for square in squares:
            weights = torch.bmm(query[:, square.queries], key[:, square.keys].mT)
            if causal:
                own = weights.shape[1]
                weights[..., -own:] += future[:own, :own]
            if closed is not None:
                weights.unflatten(0, (-1, heads)).add_(closed)
            torch.softmax(weights, dim=-1, out=weights)
            kept_parts.append(kept[used : used + weights.numel()].view_as(weights))
            weights_parts.append(weights)
            used += weights.numel()
            mixed[:, square.queries] = torch.bmm(weights * kept_parts[-1], value[:, square.keys])
        ctx.squares, ctx.scale = squares, 1 / kept_share(rate)
        ctx.save_for_backward(query, key, value, *weights_parts, *kept_parts)
        return mixed.mul_(ctx.scale).view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *parts = ctx.saved_tensors
        batch, heads, _, head_width = grad.shape
        grad = (grad * ctx.scale).flatten(0, 1)
        to_query, to_key, to_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        weights_parts, kept_parts = parts[: len(ctx.squares)], parts[len(ctx.squares) :]
        for square, weights, kept in zip(ctx.squares, weights_parts, kept_parts, strict=True):
            here = grad[:, square.queries]
            to_value[:, square.keys].baddbmm_((weights * kept).mT, here)
            to_weights = torch.bmm(here, value[:, square.keys].mT).mul_(kept)
            to_scores = torch._softmax_backward_data(to_weights, weights, -1, weights.dtype)
            to_query[:, square.queries] = torch.bmm(to_scores, key[:, square.keys])
            to_key[:, square.keys].baddbmm_(to_scores.mT, query[:, square.queries])
        to_query *= head_width**-0.5
        grads = (part.unflatten(0, (batch, heads)) for part in (to_query, to_key, to_value))
        return *grads, None, None, None, None


def _minus_infinity(where: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(where, dtype=dtype).masked_fill_(where, float("-inf"))
