"""Attention within texts that stand one after another in one row, without dropout on its weights on a CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.model.masks import Cuts


def attend_within(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cuts: Cuts,
    causal: bool,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Weighted means of the values, (1, heads, queries, head width): one query a token, or one a text."""
    if query.device.type == "cpu":
        assert not dropout, "see dropped_attention.py"
        return _text_by_text(query, key, value, cuts, causal, scale)
    if not dropout and query.dtype in (torch.bfloat16, torch.float16):
        return _by_kernel(query, key, value, cuts, causal, scale)
    return _padded(query, key, value, cuts, causal, dropout, scale)


def _text_by_text(
    query: Tensor, key: Tensor, value: Tensor, cuts: Cuts, causal: bool, scale: float | None
) -> Tensor:
    has_one_query = query.shape[2] != key.shape[2]
    found = []
    for number, span in enumerate(cuts.spans[: query.shape[2]] if has_one_query else cuts.spans):
        own = slice(number, number + 1) if has_one_query else span
        parts = query[:, :, own], key[:, :, span], value[:, :, span]
        is_causal = causal and not has_one_query
        found.append(F.scaled_dot_product_attention(*parts, is_causal=is_causal, scale=scale))
    return torch.cat(found, dim=2)


def _by_kernel(
    query: Tensor, key: Tensor, value: Tensor, cuts: Cuts, causal: bool, scale: float | None
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # torch 2.10 and later

    query, key, value = (
        part[0].transpose(0, 1) for part in (query, key, value)
    )  # (tokens, heads, head width)
    window = (-1, 0) if causal else (-1, -1)
    ends = cuts.offsets, cuts.offsets, cuts.longest, cuts.longest
    mixed = varlen_attn(query, key, value, *ends, scale=scale, window_size=window)
    assert isinstance(mixed, Tensor)
    return mixed.transpose(0, 1)[None]


def _padded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cuts: Cuts,
    causal: bool,
    dropout: float,
    scale: float | None = None,
) -> Tensor:
    """The texts side by side for the square alone, each with padding up to the longest."""
    places = torch.arange(cuts.longest, device=query.device)
    starts, lengths = cuts.offsets[:-1, None].long(), cuts.offsets.diff()[:, None]
    is_text = places < lengths  # (texts, longest)
    index = torch.where(is_text, starts + places, 0)
    query, key, value = (part[0][:, index].transpose(0, 1) for part in (query, key, value))
    allowed = is_text[:, None, None, :]
    if causal:
        allowed = allowed & (places[:, None] >= places)
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, dropout_p=dropout, scale=scale
    )
    row_of = torch.repeat_interleave(
        torch.arange(len(lengths), device=query.device), lengths[:, 0], output_size=cuts.ends[-1]
    )
    return mixed[row_of, :, cuts.positions()[0]].transpose(0, 1)[None]
