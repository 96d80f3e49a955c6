"""The block: attention, perhaps attention over another text, feed-forward; each with its residual and its norm."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headstart.model.activations import ACTIVATIONS
from headstart.model.attention import Attention, LayerCache
from headstart.model.dropout import Dropout
from headstart.model.linear import Linear
from headstart.model.masks import Mask
from headstart.model.positions import Rotation
from headstart.model.presets import ModelConfig


def make_norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.width, eps=config.norm_epsilon)
    return nn.LayerNorm(config.width, eps=config.norm_epsilon, bias=config.bias)


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
        self.attention, self.attention_norm = Attention(config), make_norm(config)
        if cross:
            self.cross_attention, self.cross_norm = Attention(config), make_norm(config)
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
        record: dict[str, list[Tensor]] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """What comes out; pre-norm in two parts, of which the block above makes the sum.

        `below` is the second part of the block below: sum and norm are one pass over memory where they stand together.
        """
        x = self.summed(x, below)
        own, cross = cache or (None, None)
        x = self._sublayer(
            x,
            self.attention_norm,
            lambda y: self.attention(
                y, mask, rotation=rotation, cache=own, record=None if record is None else record["self"]
            ),
        )
        if memory is not None and memory_mask is not None:
            x = self._sublayer(
                x,
                self.cross_norm,
                lambda y: self.cross_attention(
                    y,
                    memory_mask,
                    memory=memory,
                    cache=cross,
                    record=None if record is None else record["cross"],
                ),
            )
        if self.pre_norm:
            return x, self.feed_forward(self.feed_forward_norm(x))
        return self._sublayer(x, self.feed_forward_norm, self.feed_forward), None

    def summed(self, x: Tensor, branch: Tensor | None) -> Tensor:
        """The residual's sum with a branch whose dropout is still to come."""
        return x if branch is None else self.dropout.add(x, branch)

    def at(self, x: Tensor, places: Tensor, mask: Mask) -> Tensor:
        """The same at some places alone, (1, places, width): the other tokens are keys and values, and end here."""
        y = self.attention_norm(x) if self.pre_norm else x
        found = self.attention(y.index_select(1, places), mask, memory=y)
        found = self.dropout.add(x.index_select(1, places), found)
        if not self.pre_norm:
            found = self.attention_norm(found)
        return self._sublayer(found, self.feed_forward_norm, self.feed_forward)

    def _sublayer(self, x: Tensor, norm: nn.Module, function: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return self.dropout.add(x, function(norm(x)))
        return norm(self.dropout.add(x, function(x)))


class Stack(nn.Module):
    """Blocks on top of each other; pre-norm stacks end with a norm of their own."""

    sums_in: torch.dtype | None = None
    """What the residuals are summed up in while training; None: what they come in."""

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
        record: dict[str, list[Tensor]] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """`at` names places: then the last block gives vectors there alone, and computes no others."""
        rotation = self.rotation(positions, x.dtype)
        if self.sums_in is not None and self.training:
            x = x.to(self.sums_in)
        below: Tensor | None = None
        for index, block in enumerate(self.blocks):
            if at is not None and index == len(self.blocks) - 1:
                assert isinstance(block, Block)
                x, below = block.at(block.summed(x, below), at, mask), None
                break
            x, below = block(
                x,
                mask,
                below=below,
                rotation=rotation,
                memory=memory,
                memory_mask=memory_mask,
                cache=cache[index] if cache is not None else None,
                record=record,
            )
        return self.ended(x, below)

    def ended(self, x: Tensor, below: Tensor | None) -> Tensor:
        """What the last block gave, summed and normed."""
        block = self.blocks[-1] if below is not None else None
        return self.final_norm(block.summed(x, below) if isinstance(block, Block) else x)

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation | None:
        """How queries and keys at these positions are turned; None where positions are not rotary."""
        return Rotation(positions, self.head_width, dtype, self.rotary_base) if self.rotary else None


def new_record() -> dict[str, list[Tensor]]:
    """Where the weights go when they are asked for: a list over layers for each kind of attention."""
    return {"self": [], "cross": []}
