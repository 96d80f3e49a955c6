"""Attention by what is quickest where it runs: `attend` chooses, and each way gives what the book gives.

The reference is `attend_with_weights` (model/attention.py).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.kernels.cpu.attention_dropout import attend_with_dropout
from headstart.kernels.unpadding import Varlen
from headstart.model.attention import Mask, attend_with_weights

FEW_QUERIES = 8


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """Weighted means of the values, (batch, heads, queries, head width); zeros where nothing may be seen."""
    on_cpu = query.device.type == "cpu"
    if dropout and on_cpu:  # torch has no kernel for it there
        return attend_with_dropout(query, key, value, mask, dropout)
    if mask.varlen is not None:
        assert on_cpu or not dropout, "who wants dropout on a GPU reads documents under a mask"
        kernel = _text_by_text if on_cpu else _varlen_kernel
        return kernel((query, key, value), mask.varlen, mask.causal_square, scale)
    # A decoder's step on a CPU: torch's kernel works in blocks of many queries, and takes twice as long for a few.
    is_step = query.shape[-2] <= FEW_QUERIES and not mask.causal_square and not torch.is_grad_enabled()
    if on_cpu and is_step and query.dtype in (torch.float32, torch.float64):
        return attend_with_weights(query, key, value, mask)[0]
    mixed = F.scaled_dot_product_attention(
        query, key, value, mask.allowed, is_causal=mask.causal_square, dropout_p=dropout, scale=scale
    )
    return mixed if mask.sees_nothing is None else mixed.masked_fill(mask.sees_nothing, 0.0)


# ---- texts in one row: one query a token, or one a text ---------------------------------------------------------


QueryKeyValue = tuple[Tensor, Tensor, Tensor]


def _text_by_text(parts: QueryKeyValue, varlen: Varlen, causal: bool, scale: float | None) -> Tensor:
    query, key, value = parts
    has_one_query = query.shape[2] != key.shape[2]
    mixed = []
    for number, span in enumerate(varlen.spans[: query.shape[2]] if has_one_query else varlen.spans):
        own = slice(number, number + 1) if has_one_query else span
        here = query[:, :, own], key[:, :, span], value[:, :, span]
        is_causal = causal and not has_one_query
        mixed.append(F.scaled_dot_product_attention(*here, is_causal=is_causal, scale=scale))
    return torch.cat(mixed, dim=2)


def _varlen_kernel(parts: QueryKeyValue, varlen: Varlen, causal: bool, scale: float | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    # (tokens, heads, head width)
    query, key, value = (part[0].transpose(0, 1) for part in parts)
    window = (-1, 0) if causal else (-1, -1)
    lengths = varlen.cu_seqlens, varlen.cu_seqlens, varlen.max_seqlen, varlen.max_seqlen
    mixed = varlen_attn(query, key, value, *lengths, scale=scale, window_size=window)
    assert isinstance(mixed, Tensor)
    return mixed.transpose(0, 1)[None]
