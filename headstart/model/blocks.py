"""The block: attention, perhaps attention over another text, feed-forward; each with its residual and its norm."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.config.model import ModelConfig
from headstart.kernels.attention import attend
from headstart.kernels.kv_cache import LayerCache
from headstart.kernels.layers import Dropout, Linear, gelu, gelu_tanh
from headstart.kernels.wider_heads import attend_in_wider_heads, needs_wider_heads
from headstart.model.attention import Mask, attend_with_weights
from headstart.model.positions import Rotation

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "silu": F.silu,
    "swiglu": F.silu,  # the gate's
    "tanh": torch.tanh,  # of BERT's pooler alone
}

Record = dict[str, list[Tensor]]


def new_record() -> Record:
    """Where the weights go when they are asked for: a list over layers for each kind of attention."""
    return {"self": [], "cross": []}


def make_norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.width, eps=config.norm_epsilon)
    return nn.LayerNorm(config.width, eps=config.norm_epsilon, bias=config.bias)


class MultiHeadAttention(nn.Module):
    """One matrix for queries, keys and values, attention in each head, and one matrix for the output."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_width, self.dropout = config.width // config.heads, config.attention_dropout
        self.widths = [config.width, config.kv_width, config.kv_width]
        self.shared_by = config.heads // (config.kv_heads or config.heads)  # less to cache, and to compute
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
        """Attention of x over itself, or over `memory`; `record` receives the weights (by the book, slowly)."""
        dropout = self.dropout if self.training else 0.0
        is_plain = memory is None and rotation is None and cache is None and record is None
        if is_plain and needs_wider_heads(x, self.head_width):
            layers = self.qkv, self.output
            return attend_in_wider_heads(x, *layers, self.widths, self.head_width, mask, dropout)
        if memory is None:
            query, key, value = (self._split(part) for part in self.qkv(x).split(self.widths, dim=-1))
            if rotation is not None:
                query, key = rotation(query), rotation(key)
            if cache is not None:
                key, value = cache.extend(key, value)
        else:
            query, key, value = self._project_cross(x, memory, cache)
        if self.shared_by > 1:  # after the cache, which so stays small
            key, value = (part.repeat_interleave(self.shared_by, dim=1) for part in (key, value))
        if record is None:
            mixed = attend(query, key, value, mask, dropout)
        else:
            mixed, weights = attend_with_weights(query, key, value, mask)
            record.append(weights)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _project_cross(self, y: Tensor, memory: Tensor, cache: LayerCache | None) -> tuple[Tensor, ...]:
        """Queries from y; keys and values from the memory, computed once where there is a cache."""
        width, weight, bias = y.shape[-1], self.qkv.compute_weight, self.qkv.compute_bias
        query = self._split(F.linear(y, weight[:width], None if bias is None else bias[:width]))
        if cache is not None and cache.length:
            return query, *cache.contents()
        both = F.linear(memory, weight[width:], None if bias is None else bias[width:])
        key, value = (self._split(part) for part in both.chunk(2, dim=-1))
        return query, *((key, value) if cache is None else cache.extend(key, value))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)  # (batch, heads, length, head width)


class FeedForward(nn.Module):
    """Two matrices with a non-linearity between them; with a gate, `input` holds the gate's rows first."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gated = config.activation == "swiglu"
        self.activation = ACTIVATIONS[config.activation]
        self.input = Linear(config.width, (2 if self.gated else 1) * config.ffn, bias=config.bias)
        self.dropout = Dropout(config.ffn_dropout)
        self.output = Linear(config.ffn, config.width, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.input(x)
        if self.gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = self.activation(gate) * inner
        else:
            inner = self.activation(inner)
        return self.output(self.dropout(inner))


class Block(nn.Module):
    """One layer of a stack; with `cross`, a decoder's, which also looks at a memory."""

    def __init__(self, config: ModelConfig, cross: bool) -> None:
        super().__init__()
        self.pre_norm, self.has_cross = config.norm_place == "pre", cross
        self.attention, self.attention_norm = MultiHeadAttention(config), make_norm(config)
        if cross:
            self.cross_attention, self.cross_norm = MultiHeadAttention(config), make_norm(config)
        self.feed_forward, self.feed_forward_norm = FeedForward(config), make_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        *,
        below: Tensor | None = None,
        rotation: Rotation | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: tuple[LayerCache, LayerCache] | None = None,
        record: Record | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """What comes out; pre-norm in two parts, of which the block above makes the sum.

        `below` is the second part of the block below: sum and norm are one pass over memory where they stand together.
        """
        x = self.summed(x, below)
        own, cross = cache or (None, None)
        own_record, cross_record = (None, None) if record is None else (record["self"], record["cross"])
        x = self.sublayer(
            x,
            self.attention_norm,
            lambda y: self.attention(y, mask, rotation=rotation, cache=own, record=own_record),
        )
        if memory is not None and memory_mask is not None:
            x = self.sublayer(
                x,
                self.cross_norm,
                lambda y: self.cross_attention(y, memory_mask, memory=memory, cache=cross, record=cross_record),
            )
        if self.pre_norm:
            return x, self.feed_forward(self.feed_forward_norm(x))
        return self.sublayer(x, self.feed_forward_norm, self.feed_forward), None

    def summed(self, x: Tensor, branch: Tensor | None) -> Tensor:
        """The residual's sum with a branch whose dropout is still to come."""
        return x if branch is None else self.dropout.add(x, branch)

    def sublayer(self, x: Tensor, norm: nn.Module, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The residual's sum with what a function makes of x, and the norm before or after it."""
        if self.pre_norm:
            return self.dropout.add(x, function(norm(x)))
        return norm(self.dropout.add(x, function(x)))


class Stack(nn.Module):
    """Blocks on top of each other; pre-norm stacks end with one more norm."""

    sums_in: torch.dtype | None = None  # of the residual sums while training; None: what they come in

    def __init__(self, config: ModelConfig, depth: int, cross: bool = False) -> None:
        super().__init__()
        self.head_width = config.width // config.heads
        self.rotary, self.rotary_base = config.positions == "rotary", config.rotary_base
        self.blocks = nn.ModuleList(Block(config, cross) for _ in range(depth))
        self.final_norm = make_norm(config) if config.norm_place == "pre" else nn.Identity()

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        positions: Tensor,
        *,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: list[tuple[LayerCache, LayerCache]] | None = None,
        record: Record | None = None,
    ) -> Tensor:
        rotation = self.rotation(positions, x.dtype)
        if self.sums_in is not None and self.training:
            x = x.to(self.sums_in)
        below: Tensor | None = None
        for number, block in enumerate(self.blocks):
            x, below = block(
                x, mask, below=below, rotation=rotation, memory=memory, memory_mask=memory_mask,
                cache=cache[number] if cache is not None else None, record=record,
            )  # fmt: skip
        return self.ended(x, below)

    def ended(self, x: Tensor, below: Tensor | None) -> Tensor:
        """What the last block gave, summed and normed."""
        block = self.blocks[-1] if below is not None else None
        return self.final_norm(block.summed(x, below) if isinstance(block, Block) else x)

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation | None:
        """How queries and keys at these positions are turned; None where positions are not rotary."""
        return Rotation(positions, self.head_width, dtype, self.rotary_base) if self.rotary else None
