"""One token more on a CPU, in few calls.

A step of a small model is some microseconds of arithmetic under as many of calling (modules, masks, slices), and of
waiting for weights from memory. So a stack is taken apart once, into the bare operations of each block, and a step is
a list of them. What it computes is what the model's own blocks compute; they stay the reference, and read the prompt.
"""

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.inference.decoding.candidate_vocab import CandidateVocab, can_use_candidates
from headstart.inference.decoding.sampling import NEVER, likeliest
from headstart.kernels.kv_cache import LayerCache
from headstart.model.base import Embedding
from headstart.model.blocks import Block, FeedForward, MultiHeadAttention, Stack
from headstart.model.model import Model
from headstart.model.positions import Rotation

# Memory gives long rows faster than short ones, so few vectors times a tall matrix take up to four times as long as
# times the same matrix transposed. To transpose takes as long as some ten such products, and as much memory again.
TRANSPOSED_AFTER, FEW_ROWS = 10, 4

# Of the vocabulary, so that what is written is still near when the next piece is: a seventh of the time for 32 rows.
CHUNK = 4_096
Norm = Callable[[Tensor], Tensor]


class _Context(NamedTuple):
    """What all blocks of a step share. Rows are texts, beams are the tokens that each of them reads at once."""

    rows: int
    beams: int
    bias: Tensor | None  # (rows · key heads, shared by · beams, keys): -inf where a beam may not look
    memory_bias: Tensor | None  # (rows · key heads, 1, keys of the source)
    rotation: Rotation | None


class DecodeStep:
    """An embedding, a stack and an output layer, taken apart."""

    def __init__(self, embedding: Embedding, stack: Stack, output: nn.Linear) -> None:
        self.embedding, self.stack = embedding, stack
        self.embedding_norm, self.final_norm = _norm(embedding.norm), _norm(stack.final_norm)
        self.blocks = [_Block(block) for block in stack.blocks]  # type: ignore[arg-type]
        self.output = OutputLayer(output)
        self.steps_of_few, self.is_transposed = 0, False

    @property
    def is_usable(self) -> bool:
        """Whether it can be used: on a CPU, no gradient, and the precision of the weights themselves."""
        is_plain = not (self.stack.training or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"))
        return is_plain and self.output.weight.device.type == "cpu"

    def __call__(
        self, tokens: Tensor, positions: Tensor, longest: int, caches: list[tuple[LayerCache, LayerCache]],
        allowed: Tensor | None = None, memory_allowed: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Read a token in each beam, (rows, beams), after what the caches hold: its vector, (rows · beams, width).

        `allowed` (rows, beams or 1, keys) says which keys a beam may look at (default: all), at least one.
        """
        rows, beams = tokens.shape
        self.steps_of_few += rows * beams <= FEW_ROWS
        if not self.is_transposed and self.steps_of_few > TRANSPOSED_AFTER:
            for sublayer, _ in (pair for block in self.blocks for pair in block.sublayers):
                sublayer.input.transpose()
                sublayer.output.transpose()
            self.is_transposed = True
        x = self._embed(tokens, positions, longest)
        attention = self.blocks[0].attention
        bias, memory_bias = (attention.bias_of(mask, beams, x.dtype) for mask in (allowed, memory_allowed))
        context = _Context(rows, beams, bias, memory_bias, self.stack.rotation(positions, x.dtype))
        x = x.flatten(0, 1)
        for block, (own, cross) in zip(self.blocks, caches, strict=True):
            x = block(x, context, own, cross)
        return self.final_norm(x)

    def _embed(self, tokens: Tensor, positions: Tensor, longest: int) -> Tensor:
        embedding = self.embedding
        x = F.embedding(tokens, embedding.tokens.weight)
        if embedding.scale != 1:
            x = x * embedding.scale
        if embedding.positions is not None:
            x = embedding.positions(x, positions, longest)
        if embedding.segments is not None:
            x = x + embedding.segments.weight[0]
        return self.embedding_norm(x)


# A transposed copy of the weights serves all texts that a model writes.
_STEPS: WeakKeyDictionary[Model, tuple[list[tuple[int, int]], DecodeStep]] = WeakKeyDictionary()


def decode_step(model: Model, embedding: Embedding, stack: Stack) -> DecodeStep:
    """The step of a model, taken apart once, and again where its weights are others than they were."""
    weights = [(w.data_ptr(), 0 if w.is_inference() else w._version) for w in model.parameters()]
    known = _STEPS.get(model)
    if known is None or known[0] != weights:
        known = _STEPS[model] = weights, DecodeStep(embedding, stack, model.head.output)
    return known[1]


class OutputLayer:
    """The layer over the vocabulary."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer, self.weight, self.bias, self.calls_of_few = layer, layer.weight, layer.bias, 0
        self.transposed: Tensor | None = None  # (parts, in, out / parts): a part for each thread
        self.candidates: CandidateVocab | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of vectors (rows, width)."""
        self.calls_of_few += len(x) <= FEW_ROWS
        if len(x) > FEW_ROWS or self.calls_of_few <= TRANSPOSED_AFTER:
            return self._in_chunks(x)
        if self.transposed is None:
            self.transposed = self._transpose(torch.get_num_threads())
        parts = torch.bmm(x.expand(len(self.transposed), -1, -1), self.transposed)
        logits = parts.transpose(0, 1).reshape(len(x), -1)[:, : len(self.weight)]
        return logits if self.bias is None else logits.add_(self.bias)

    def likeliest(self, x: Tensor, never: Tensor) -> Tensor:
        """The token with the highest logit for each vector, `never` left out."""
        if not can_use_candidates(self.layer):
            return likeliest(self(x).index_fill_(1, never, NEVER))
        self.candidates = self.candidates or CandidateVocab(self.layer)
        return self.candidates.best(x, never)

    def _in_chunks(self, x: Tensor) -> Tensor:
        logits = x.new_empty(len(x), len(self.weight))
        for start in range(0, len(self.weight), CHUNK):
            rows, here = self.weight[start : start + CHUNK].t(), logits[:, start : start + CHUNK]
            if self.bias is None:
                torch.mm(x, rows, out=here)
            else:
                torch.addmm(self.bias[start : start + CHUNK], x, rows, out=here)
        return logits

    def _transpose(self, parts: int) -> Tensor:
        """The weights in parts of one size; the logits of the filling in the last part are cut off."""
        vocab, width = self.weight.shape
        size = -(-vocab // parts)
        transposed = self.weight.new_empty(parts, width, size)
        for number, part in enumerate(self.weight.split(size)):
            transposed[number, :, : len(part)] = part.t()
        return transposed


class _Linear:
    """A linear layer that may be transposed."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.transposed: Tensor | None = None  # (in, out)

    def __call__(self, x: Tensor) -> Tensor:
        if self.transposed is None:
            return F.linear(x, self.weight, self.bias)
        return torch.mm(x, self.transposed) if self.bias is None else torch.addmm(self.bias, x, self.transposed)

    def transpose(self) -> None:
        if self.weight.shape[0] > self.weight.shape[1]:
            self.transposed = self.weight.t().contiguous()


class _Block:
    def __init__(self, block: Block) -> None:
        self.pre_norm, self.attention = block.pre_norm, _Attention(block.attention)
        self.sublayers: list[tuple[_Attention | _FeedForward, Norm]] = [(self.attention, _norm(block.attention_norm))]
        if block.has_cross:
            self.sublayers.append((_Attention(block.cross_attention, over_memory=True), _norm(block.cross_norm)))
        self.sublayers.append((_FeedForward(block.feed_forward), _norm(block.feed_forward_norm)))

    def __call__(self, x: Tensor, context: _Context, own: LayerCache, cross: LayerCache) -> Tensor:
        for sublayer, norm in self.sublayers:
            if self.pre_norm:
                x = x + sublayer(norm(x), context, own, cross)
            else:
                x = norm(x + sublayer(x, context, own, cross))
        return x


class _Attention:
    """Over what was read before, or over the memory, whose keys and values are in the cache already."""

    def __init__(self, attention: MultiHeadAttention, over_memory: bool = False) -> None:
        rows = attention.widths[0] if over_memory else sum(attention.widths)  # queries alone, or all
        weight, bias = attention.qkv.weight[:rows], attention.qkv.bias
        self.input = _Linear(weight, None if bias is None else bias[:rows])
        self.output = _Linear(attention.output.weight, attention.output.bias)
        self.over_memory, self.head_width = over_memory, attention.head_width
        self.scale, self.nothing = self.head_width**-0.5, weight.new_zeros(1)
        self.heads, self.kv_heads, _ = (width // self.head_width for width in attention.widths)
        self.shared_by = attention.shared_by

    def __call__(self, x: Tensor, context: _Context, own: LayerCache, cross: LayerCache) -> Tensor:
        heads = self.input(x).view(context.rows, context.beams, -1, self.head_width).transpose(1, 2)
        if self.over_memory:
            return self.output(self._attend(heads, *cross.contents(), context.memory_bias))
        turned = heads.narrow(1, 0, self.heads + self.kv_heads)
        if context.rotation is not None:
            turned = context.rotation(turned)
        query, key = turned.narrow(1, 0, self.heads), turned.narrow(1, self.heads, self.kv_heads)
        value = heads.narrow(1, self.heads + self.kv_heads, self.kv_heads)
        return self.output(self._attend(query, *own.extend(key, value), context.bias))

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        """Attention over all keys, (rows · beams, width); heads that share keys stand there as more beams."""
        rows, heads, beams, head_width = query.shape
        groups = query.reshape(-1, self.shared_by * beams, head_width)
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        added = self.nothing if bias is None else bias
        scores = torch.baddbmm(added, groups, keys.transpose(1, 2), beta=bias is not None, alpha=self.scale)
        mixed = torch.bmm(scores.softmax(dim=-1), values)
        return mixed.view(rows, heads, beams, head_width).transpose(1, 2).reshape(rows * beams, -1)

    def bias_of(self, allowed: Tensor | None, beams: int, dtype: torch.dtype) -> Tensor | None:
        """A mask (rows, beams or 1, keys) as what is added to the scores, for every head."""
        if allowed is None:
            return None
        bias = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, NEVER)
        rows, _, keys = bias.shape
        bias = bias[:, None, None].expand(-1, self.kv_heads, self.shared_by, beams, -1)
        return bias.reshape(rows * self.kv_heads, -1, keys)


class _FeedForward:
    def __init__(self, layer: FeedForward) -> None:
        self.input, self.output = (_Linear(part.weight, part.bias) for part in (layer.input, layer.output))
        self.activation, self.gated = layer.activation, layer.gated

    def __call__(self, x: Tensor, context: _Context, own: LayerCache, cross: LayerCache) -> Tensor:
        inner = self.input(x)
        if not self.gated:
            return self.output(self.activation(inner))
        gate, inner = inner.chunk(2, dim=-1)
        return self.output(self.activation(gate) * inner)


def _norm(layer: nn.Module) -> Norm:
    if isinstance(layer, nn.LayerNorm):
        shape, weight, bias, epsilon = list(layer.normalized_shape), layer.weight, layer.bias, layer.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    return layer  # as a module: an RMSNorm, or nothing
