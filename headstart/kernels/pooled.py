"""The pooled vector of each text without the last block at all other tokens: a CPU's path for sentence heads."""

from typing import Any

from torch import Tensor

from headstart.config.model import Pooling
from headstart.kernels.unpadding import unpad
from headstart.model.attention import Mask
from headstart.model.base import Base
from headstart.model.blocks import Block


def read_pooled(base: Base, tokens: Tensor, pooling: Pooling, reading: dict[str, Any]) -> Tensor | None:
    """The vector of each text's first or last token, (batch, width); None where the whole text has to be read.

    That is on a GPU (which would have to be waited for), where the pooled token does not see all others, where
    positions turn the queries, and where a text is empty.
    """
    sees_all = pooling == "last" if base.causal else pooling != "mean"
    if tokens.device.type != "cpu" or not sees_all or base.config.positions == "rotary":
        return None
    present = reading.get("present")
    has_empty = present is not None and not bool(present.any(dim=1).all())
    if has_empty or not reading.keys() <= {"present", "segments"}:
        return None
    row = unpad(tokens, present, None, reading.get("segments"))
    ends = row.varlen.cu_seqlens[: row.texts + 1].long()
    index = ends[:-1] if pooling == "first" else ends[1:] - 1
    mask = Mask(causal_square=base.causal, varlen=row.varlen)
    x = base.embedding(row.tokens, row.varlen.positions(), row.varlen.max_seqlen, row.segments)
    stack = base.stack
    if stack.sums_in is not None and stack.training:
        x = x.to(stack.sums_in)
    *lower, last = stack.blocks
    below: Tensor | None = None
    for block in lower:
        x, below = block(x, mask, below=below)
    assert isinstance(last, Block)
    return stack.ended(_block_at(last, last.summed(x, below), index, mask), None)[0]


def _block_at(block: Block, x: Tensor, index: Tensor, mask: Mask) -> Tensor:
    """A block at some tokens alone, (1, index, width): the others are keys and values, and end here."""
    y = block.attention_norm(x) if block.pre_norm else x
    mixed = block.attention(y.index_select(1, index), mask, memory=y)
    x = block.summed(x.index_select(1, index), mixed)
    if not block.pre_norm:
        x = block.attention_norm(x)
    return block.sublayer(x, block.feed_forward_norm, block.feed_forward)
