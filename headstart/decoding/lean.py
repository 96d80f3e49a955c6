"""One token more on a CPU, in few calls.

A step of a small model is some microseconds of arithmetic under as many of calling (modules, masks, slices), and of
waiting for weights from memory. So a stack is taken apart once, into the bare operations of each block, and a step is
a list of them. What it computes is what the model's own blocks compute; they stay the reference, and read the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.decoding.sampling import NEVER, likeliest
from headstart.decoding.shortlist import Shortlist, can_shortlist
from headstart.model.attention import Attention, LayerCache
from headstart.model.base import Embedding
from headstart.model.blocks import Block, FeedForward, Stack
from headstart.model.model import Model
from headstart.model.positions import Rotation

Function = Callable[[Tensor], Tensor]
# Memory gives long rows faster than short ones, so few vectors times a tall matrix take up to four times as long as
# times the same matrix turned. Turning takes as long as some ten such products, and as much memory again.
TURNED_AFTER, FEW_ROWS = 10, 4
# Of the vocabulary, so that what is written is still near when the next piece is: a seventh of the time for 32 rows.
CHUNK = 4_096


class Place(NamedTuple):
    """What all blocks of a step share. Rows are texts, ways are the tokens that each of them reads at once."""

    rows: int
    ways: int
    bias: Tensor | None  # (rows · key heads, shared by · ways, keys): minus infinity where a way may not look
    memory_bias: Tensor | None  # (rows · key heads, 1, keys of the source)
    rotation: Rotation | None


class LeanStep:
    """An embedding, a stack and an output layer, taken apart."""

    def __init__(self, embedding: Embedding, stack: Stack, output: nn.Linear) -> None:
        self.embedding, self.stack = embedding, stack
        self.embedding_norm, self.final_norm = _norm(embedding.norm), _norm(stack.final_norm)
        self.blocks = [_Block(block) for block in stack.blocks]  # type: ignore[arg-type]
        self.output = LeanOutput(output)
        self.steps_of_few, self.is_turned = 0, False

    @property
    def is_usable(self) -> bool:
        """Whether this is a place for it: a CPU, nothing to learn, and the precision of the weights themselves."""
        return (
            self.output.weight.device.type == "cpu"
            and not (self.stack.training or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"))
        )  # fmt: skip

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        longest: int,
        caches: list[tuple[LayerCache, LayerCache]],
        allowed: Tensor | None = None,
        memory_allowed: Tensor | None = None,
    ) -> Tensor:
        """Read a token in each way, (rows, ways), after what the caches hold: its vector, (rows · ways, width).

        `allowed` (rows, ways or 1, keys) says which keys a way may look at (default: all); it may look at one at least.
        """
        rows, ways = tokens.shape
        self.steps_of_few += rows * ways <= FEW_ROWS
        if not self.is_turned and self.steps_of_few > TURNED_AFTER:
            self._turn()
        x = self._embedded(tokens, positions, longest)
        heads = self.blocks[0].attention
        place = Place(
            rows, ways, heads.bias_of(allowed, ways, x.dtype), heads.bias_of(memory_allowed, ways, x.dtype),
            self.stack.rotation(positions, x.dtype),
        )  # fmt: skip
        x = x.flatten(0, 1)
        for block, (own, cross) in zip(self.blocks, caches, strict=True):
            x = block(x, place, own, cross)
        return self.final_norm(x)

    def _embedded(self, tokens: Tensor, positions: Tensor, longest: int) -> Tensor:
        embedding = self.embedding
        x = F.embedding(tokens, embedding.tokens.weight)
        if embedding.scale != 1:
            x = x * embedding.scale
        if embedding.positions is not None:
            x = embedding.positions(x, positions, longest)
        if embedding.segments is not None:
            x = x + embedding.segments.weight[0]
        return self.embedding_norm(x)

    def _turn(self) -> None:
        for block in self.blocks:
            for layer in block.layers():
                layer.turn()
        self.is_turned = True


# A turned copy of the weights serves all texts that a model writes.
_STEPS: WeakKeyDictionary[Model, tuple[list[tuple[int, int]], LeanStep]] = WeakKeyDictionary()


def lean_step(model: Model, embedding: Embedding, stack: Stack) -> LeanStep:
    """The step of a model, taken apart once, and again where its weights are others than they were."""
    weights = [(w.data_ptr(), 0 if w.is_inference() else w._version) for w in model.parameters()]
    known = _STEPS.get(model)
    if known is None or known[0] != weights:
        known = _STEPS[model] = weights, LeanStep(embedding, stack, model.head.output)
    return known[1]


class _Linear:
    """A linear layer that may be turned."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.turned: Tensor | None = None  # (in, out)

    def __call__(self, x: Tensor) -> Tensor:
        if self.turned is None:
            return F.linear(x, self.weight, self.bias)
        return torch.mm(x, self.turned) if self.bias is None else torch.addmm(self.bias, x, self.turned)

    def turn(self) -> None:
        if self.weight.shape[0] > self.weight.shape[1]:
            self.turned = self.weight.t().contiguous()


class LeanOutput:
    """The layer over the vocabulary."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer, self.weight, self.bias, self.calls_of_few = layer, layer.weight, layer.bias, 0
        self.turned: Tensor | None = None  # (parts, in, out / parts): a part for each thread
        self.shortlist: Shortlist | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of vectors (rows, width)."""
        self.calls_of_few += len(x) <= FEW_ROWS
        if len(x) > FEW_ROWS or self.calls_of_few <= TURNED_AFTER:
            return self._in_chunks(x)
        if self.turned is None:
            self.turned = self._turned(torch.get_num_threads())
        parts = torch.bmm(x.expand(len(self.turned), -1, -1), self.turned)
        logits = parts.transpose(0, 1).reshape(len(x), -1)[:, : len(self.weight)]
        return logits if self.bias is None else logits.add_(self.bias)

    def likeliest(self, x: Tensor, never: Tensor) -> Tensor:
        """The token with the highest logit for each vector, `never` left out."""
        if not can_shortlist(self.layer):
            return likeliest(self(x).index_fill_(1, never, NEVER))
        self.shortlist = self.shortlist or Shortlist(self.layer)
        return self.shortlist.best(x, never)

    def _in_chunks(self, x: Tensor) -> Tensor:
        logits = x.new_empty(len(x), len(self.weight))
        for start in range(0, len(self.weight), CHUNK):
            rows, here = self.weight[start : start + CHUNK].t(), logits[:, start : start + CHUNK]
            if self.bias is None:
                torch.mm(x, rows, out=here)
            else:
                torch.addmm(self.bias[start : start + CHUNK], x, rows, out=here)
        return logits

    def _turned(self, parts: int) -> Tensor:
        """What the last part has too much is cut off the logits, whatever it is."""
        vocab, width = self.weight.shape
        size = -(-vocab // parts)
        turned = self.weight.new_empty(parts, width, size)
        for number, part in enumerate(self.weight.split(size)):
            turned[number, :, : len(part)] = part.t()
        return turned


class _Block:
    def __init__(self, block: Block) -> None:
        self.pre_norm = block.pre_norm
        self.attention, self.attention_norm = _Attention(block.attention), _norm(block.attention_norm)
        self.cross: _Attention | None = None
        if block.has_cross:
            self.cross, self.cross_norm = (
                _Attention(block.cross_attention, over_memory=True), _norm(block.cross_norm),
            )  # fmt: skip
        self.feed_forward, self.feed_forward_norm = (
            _FeedForward(block.feed_forward), _norm(block.feed_forward_norm),
        )  # fmt: skip

    def __call__(self, x: Tensor, place: Place, own: LayerCache, cross: LayerCache) -> Tensor:
        if self.pre_norm:
            x = x + self.attention(self.attention_norm(x), place, own)
            if self.cross is not None:
                x = x + self.cross(self.cross_norm(x), place, cross)
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x + self.attention(x, place, own))
        if self.cross is not None:
            x = self.cross_norm(x + self.cross(x, place, cross))
        return self.feed_forward_norm(x + self.feed_forward(x))

    def layers(self) -> Iterator[_Linear]:
        for part in (self.attention, self.cross, self.feed_forward):
            if part is not None:
                yield from (part.input, part.output)


class _Attention:
    """Over what was read before, or over the memory, whose keys and values are in the cache already."""

    def __init__(self, attention: Attention, over_memory: bool = False) -> None:
        rows = attention.widths[0] if over_memory else sum(attention.widths)  # queries alone, or all
        weight, bias = attention.qkv.weight[:rows], attention.qkv.bias
        self.input = _Linear(weight, None if bias is None else bias[:rows])
        self.output = _Linear(attention.output.weight, attention.output.bias)
        self.over_memory, self.head_width = over_memory, attention.head_width
        self.scale, self.nothing = self.head_width**-0.5, weight.new_zeros(1)
        self.heads, self.kv_heads, _ = (width // self.head_width for width in attention.widths)
        self.shared_by = attention.shared_by

    def __call__(self, x: Tensor, place: Place, cache: LayerCache) -> Tensor:
        heads = self.input(x).view(place.rows, place.ways, -1, self.head_width).transpose(1, 2)
        if self.over_memory:
            return self.output(self._attend(heads, *cache.held(), place.memory_bias))
        looking = heads.narrow(1, 0, self.heads + self.kv_heads)
        if place.rotation is not None:
            looking = place.rotation(looking)
        query, key = looking.narrow(1, 0, self.heads), looking.narrow(1, self.heads, self.kv_heads)
        value = heads.narrow(1, self.heads + self.kv_heads, self.kv_heads)
        return self.output(self._attend(query, *cache.extend(key, value), place.bias))

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        """Attention of (rows, heads, ways, head width) over all keys, as (rows · ways, width).

        Heads that share keys and values stand with them as more ways to look at the same.
        """
        rows, heads, ways, head_width = query.shape
        groups = query.reshape(-1, self.shared_by * ways, head_width)
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        scores = torch.baddbmm(
            self.nothing if bias is None else bias, groups, keys.transpose(1, 2),
            beta=bias is not None, alpha=self.scale,
        )  # fmt: skip
        mixed = torch.bmm(scores.softmax(dim=-1), values)
        return mixed.view(rows, heads, ways, head_width).transpose(1, 2).reshape(rows * ways, -1)

    def bias_of(self, allowed: Tensor | None, ways: int, dtype: torch.dtype) -> Tensor | None:
        """A mask (rows, ways or 1, keys) as what is added to the scores, for every head."""
        if allowed is None:
            return None
        bias = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, NEVER)
        rows, _, keys = bias.shape
        return bias[:, None, None].expand(-1, self.kv_heads, self.shared_by, ways, -1).reshape(
            rows * self.kv_heads, -1, keys
        )  # fmt: skip


class _FeedForward:
    def __init__(self, layer: FeedForward) -> None:
        self.input, self.output = (_Linear(part.weight, part.bias) for part in (layer.input, layer.output))
        self.activation, self.gated = layer.activation, layer.gated

    def __call__(self, x: Tensor) -> Tensor:
        inner = self.input(x)
        if not self.gated:
            return self.output(self.activation(inner))
        gate, inner = inner.chunk(2, dim=-1)
        return self.output(self.activation(gate) * inner)


def _norm(layer: nn.Module) -> Function:
    if isinstance(layer, nn.LayerNorm):
        shape, weight, bias, epsilon = list(layer.normalized_shape), layer.weight, layer.bias, layer.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    return layer  # as a module: an RMSNorm, or nothing
