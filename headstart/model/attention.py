"""Attention by the book, and the masks that say which keys a query may look at."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.kernels.unpadding import Varlen


class Mask(NamedTuple):
    """Who may look at whom. The plain causal square is a flag, because kernels have a fast path for it."""

    causal_square: bool = False  # of each text, where the texts stand in one row
    allowed: Tensor | None = None  # (batch or 1, 1, queries, keys), True where a query may look at a key
    # (batch, 1, queries, 1), True where a query may look at nothing: some kernels answer with NaN or noise. There
    # `allowed` is True everywhere, and attention sets what it gets to zero.
    sees_nothing: Tensor | None = None
    varlen: Varlen | None = None  # then the batch is one row of texts, and the two above are None


def subsequent_mask(length: int, device: torch.device | str = "cpu") -> Tensor:
    """The square mask (queries, keys): True on and below the diagonal."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def build_mask(
    query_length: int,
    key_length: int,
    keys_present: Tensor | None = None,
    documents: Tensor | None = None,
    *,
    causal: bool,
    device: torch.device | str = "cpu",
) -> Mask:
    """The mask for queries that stand at the end of the keys (they are fewer where a cache holds the past).

    `keys_present` (batch, keys) is False on padding; a query looks only at keys of the same document.
    """
    rules, before = list[Tensor](), key_length - query_length
    if keys_present is not None:
        rules.append(keys_present[:, None, None, :])
    if documents is not None:
        rules.append((documents[:, before:, None] == documents[:, None, :])[:, None])
    if causal and query_length > 1:  # one query at the end has no future to hide
        if not rules and not before:
            return Mask(causal_square=True)
        seen = torch.ones(query_length, key_length, dtype=torch.bool, device=device)
        rules.append(seen.tril(before)[None, None])
    allowed = functools.reduce(torch.logical_and, rules) if rules else None
    if keys_present is None or allowed is None:  # without padding a query sees itself at least
        return Mask(allowed=allowed)
    sees_nothing = ~allowed.any(dim=-1, keepdim=True)
    return Mask(allowed=allowed | sees_nothing, sees_nothing=sees_nothing)


def attend_with_weights(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / √d) V, (batch, heads, queries, head width), and the weights (batch, heads, queries, keys).

    This is the reference. What trains and decodes is `kernels.attention.attend`, which gives the same quicker.
    """
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    allowed = subsequent_mask(query.shape[-2], query.device) if mask.causal_square else mask.allowed
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    weights = scores.softmax(dim=-1)
    if mask.sees_nothing is not None:
        weights = weights.masked_fill(mask.sees_nothing, 0.0)
    return weights @ value, weights
