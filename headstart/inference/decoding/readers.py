"""Models as a search sees them, with a cache.

A search reads a prompt and continues it once (`read`) or in several beams (`branch`). The beams of a text share a row:
their tokens lie side by side in one cache, and a mask gives the ancestors of each beam. So the cache is never copied
when beams are reordered, and all beams of a translation share the keys of its source.
"""

from typing import Any

import torch
from torch import Tensor

from headstart.inference.decoding.cpu_decode import decode_step
from headstart.inference.decoding.sampling import NEVER, likeliest
from headstart.kernels.kv_cache import Cache
from headstart.model.attention import Mask, build_mask
from headstart.model.base import Base, Embedding, EncoderDecoderBase
from headstart.model.blocks import Stack
from headstart.model.model import Model


class _Beams:
    """The beams that share a cache: the ancestors of each, and its position."""

    def __init__(self, cache: Cache, like: Tensor) -> None:
        present = cache.present
        if present is None:
            present = torch.ones(len(like), cache.length, dtype=torch.bool, device=like.device)
        self.ancestors = present[:, None]  # (rows, beams, keys): at first one beam, which has read the prompt
        self.position = present.sum(dim=1, keepdim=True)  # (rows, 1): of the next token
        self.longest = cache.length

    def grow(self, parents: Tensor) -> tuple[Tensor, Tensor]:
        """A token for each beam after its parent: the keys that it attends to (rows, beams, keys), its position."""
        rows, beams = parents.shape
        inherited = self.ancestors.gather(1, parents[..., None].expand(-1, -1, self.ancestors.shape[-1]))
        own = torch.eye(beams, dtype=torch.bool, device=parents.device).expand(rows, -1, -1)
        self.ancestors = torch.cat([inherited, own], dim=-1)
        self.position, self.longest = self.position + 1, self.longest + 1
        return self.ancestors, self.position.expand(-1, beams) - 1

    def select(self, rows: Tensor) -> None:
        self.ancestors, self.position = self.ancestors[rows], self.position[rows]


class CachedReader:
    """A causal language model with a cache; after the prompt it reads in few calls where that is quicker."""

    source_present: Tensor | None = None  # (batch, source), of an encoder-decoder
    _has_sources = True

    def __init__(self, model: Model) -> None:
        self.model, self.cache = model, model.base.new_cache()
        self._beams: _Beams | None = None
        self._embedding, self._stack = self._parts()
        self._cpu_step = decode_step(model, self._embedding, self._stack)

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read the new tokens; logits of the next one, (batch, vocab)."""
        x = self._last(tokens, present)
        return self._cpu_step.output(x) if self._uses_cpu_step() else self.model.head(x)

    def likeliest(self, tokens: Tensor, present: Tensor | None, never: Tensor) -> Tensor:
        """Read the new tokens; the most probable next one except those in `never`, (batch,)."""
        x = self._last(tokens, present)
        if self._uses_cpu_step():
            return self._cpu_step.output.likeliest(x, never)
        return likeliest(self.model.head(x).index_fill(1, never, NEVER))

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Read a token for each beam (batch, beams) after its parent; logits (batch, beams, vocab)."""
        self._beams = self._beams or _Beams(self.cache, tokens)
        ancestors, positions = self._beams.grow(parents)
        self.cache.length += tokens.shape[1]
        if self._uses_cpu_step():
            x = self._step(tokens, positions, self._beams.longest, ancestors)
            return self._cpu_step.output(x).unflatten(0, tokens.shape)
        x, mask = self._embedding(tokens, positions, self._beams.longest), Mask(allowed=ancestors[:, None])
        memory = self._memory_of(tokens.shape[1])
        return self.model.head(self._stack(x, mask, positions, cache=self.cache.layers, **memory))

    def select(self, rows: Tensor) -> None:
        """Continue with these rows only, in this order."""
        self.cache.select(rows)
        if self._beams is not None:
            self._beams.select(rows)

    def _last(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        """Read the new tokens; the vector of the last, (batch, width)."""
        assert self._beams is None, "what has branched is read by branching"
        if tokens.shape[1] > 1 or present is not None or not self.cache.length or not self._uses_cpu_step():
            return self._read(tokens, present)[:, -1]
        all_present, allowed = self.cache.extend(tokens, None), None
        positions = torch.full((1, 1), self.cache.length - 1)
        if all_present is not None:
            positions, allowed = all_present.sum(dim=1, keepdim=True) - 1, all_present[:, None]
        return self._step(tokens, positions, self.cache.length, allowed)

    def _parts(self) -> tuple[Embedding, Stack]:
        base = self.model.base
        assert isinstance(base, Base)
        return base.embedding, base.stack

    def _uses_cpu_step(self) -> bool:
        return self._has_sources and self._cpu_step.is_usable  # the model itself knows of sources of nothing

    def _step(self, tokens: Tensor, positions: Tensor, longest: int, allowed: Tensor | None) -> Tensor:
        seen = None if self.source_present is None else self.source_present[:, None]
        return self._cpu_step(tokens, positions, longest, self.cache.layers, allowed, seen)

    def _read(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        return self.model.base(tokens, present=present, cache=self.cache)

    def _memory_of(self, queries: int) -> dict[str, Any]:
        """What a decoder attends to besides: the memory and its mask."""
        return {}


class TranslationReader(CachedReader):
    """An encoder-decoder: the sources are encoded, and their keys computed, once."""

    def __init__(self, model: Model, source: Tensor, source_present: Tensor | None = None) -> None:
        super().__init__(model)
        self.source_present = source_present
        self.memory: Tensor = model.base.encode(source, source_present)  # type: ignore[operator]
        self._has_sources = source_present is None or bool(source_present.any(dim=1).all())

    def select(self, rows: Tensor) -> None:
        """Continue with these rows only, in this order."""
        super().select(rows)
        self.memory = self.memory[rows]
        if self.source_present is not None:
            self.source_present = self.source_present[rows]

    def _parts(self) -> tuple[Embedding, Stack]:
        base = self.model.base
        assert isinstance(base, EncoderDecoderBase)
        return base.target_embedding or base.embedding, base.decoder

    def _read(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        hidden: Tensor = self.model.base.decode(  # type: ignore[operator]
            tokens, self.memory, memory_present=self.source_present, present=present, cache=self.cache
        )
        for _, cross in self.cache.layers:  # nothing is added to them: without room to grow less is copied
            cross.keys, cross.values = cross.contents()
        return hidden

    def _memory_of(self, queries: int) -> dict[str, Any]:
        mask = build_mask(queries, self.memory.shape[1], causal=False, keys_present=self.source_present)
        return {"memory": self.memory, "memory_mask": mask}
