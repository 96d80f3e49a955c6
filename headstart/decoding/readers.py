"""Models as a search sees them: with a cache, or slowly without one, which is the reference.

A search reads a prompt, and then goes on in one way (`read`) or in several (`branch`). The ways of a text share a
row: they stand side by side in one cache as if they were tokens of one sequence, and a mask says which of them each
way descends from. So a beam is never copied when it is reordered, and all ways of a translation look at the same
keys of its source.
"""

import torch
from torch import Tensor

from headstart.decoding.lean import lean_step
from headstart.decoding.sampling import NEVER, likeliest
from headstart.model.base import Base, Cache, Embedding, EncoderDecoderBase
from headstart.model.blocks import Stack
from headstart.model.masks import Mask, build_mask
from headstart.model.model import Model


class _Ways:
    """The ways that a cache holds side by side: what each descends from, and where it stands."""

    def __init__(self, cache: Cache, like: Tensor) -> None:
        rows, device = len(like), like.device
        present = cache.present
        if present is None:
            present = torch.ones(rows, cache.length, dtype=torch.bool, device=device)
        self.ancestors = present[:, None]  # (rows, ways, keys): at first one way, which has read the prompt
        self.position = present.sum(dim=1, keepdim=True)  # (rows, 1): of the next token
        self.longest = cache.length

    def grow(self, parents: Tensor) -> tuple[Tensor, Tensor]:
        """One token for each way, which goes on from its parent: whom it sees (rows, ways, keys), and its position."""
        rows, ways = parents.shape
        inherited = self.ancestors.gather(1, parents[..., None].expand(-1, -1, self.ancestors.shape[-1]))
        own = torch.eye(ways, dtype=torch.bool, device=parents.device).expand(rows, -1, -1)
        self.ancestors = torch.cat([inherited, own], dim=-1)
        positions = self.position.expand(-1, ways)
        self.position = self.position + 1
        self.longest += 1
        return self.ancestors, positions

    def select(self, rows: Tensor) -> None:
        self.ancestors, self.position = self.ancestors[rows], self.position[rows]


class CachedReader:
    """A causal language model that keeps what it has read.

    The model itself reads the prompt; what comes after it, token by token, is read in few calls where that is quicker.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.cache = model, model.base.new_cache()
        self._ways: _Ways | None = None
        self._embedding, self._stack = self._parts()
        self._lean = lean_step(model, self._embedding, self._stack)

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read the new tokens; logits of the next one, (batch, vocab)."""
        x = self._last(tokens, present)
        logits: Tensor = self._lean.output(x) if self._is_lean() else self.model.head(x)
        return logits

    def likeliest(self, tokens: Tensor, present: Tensor | None, never: Tensor) -> Tensor:
        """Read the new tokens; the next one, the likeliest but for those that never come, (batch,)."""
        x = self._last(tokens, present)
        if self._is_lean():
            return self._lean.output.likeliest(x, never)
        return likeliest(self.model.head(x).index_fill(1, never, NEVER))

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Read a token in each way, (batch, ways), after the way `parents` names; logits (batch, ways, vocab)."""
        self._ways = self._ways or _Ways(self.cache, tokens)
        ancestors, positions = self._ways.grow(parents)
        self.cache.length += tokens.shape[1]
        if self._is_lean():
            x = self._step(tokens, positions, self._ways.longest, ancestors)
            return self._lean.output(x).unflatten(0, tokens.shape)
        logits: Tensor = self.model.head(self._branch(tokens, positions, self._ways.longest, ancestors))
        return logits

    def select(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        self.cache.select(rows)
        if self._ways is not None:
            self._ways.select(rows)

    def _last(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        """Read the new tokens; the vector of the last, (batch, width)."""
        assert self._ways is None, "what has branched is read by branching"
        if tokens.shape[1] > 1 or present is not None or not self.cache.length or not self._is_lean():
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

    def _is_lean(self) -> bool:
        return self._lean.is_usable

    def _step(self, tokens: Tensor, positions: Tensor, longest: int, allowed: Tensor | None) -> Tensor:
        return self._lean(tokens, positions, longest, self.cache.layers, allowed)

    def _read(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        hidden: Tensor = self.model.base(tokens, present=present, cache=self.cache)
        return hidden

    def _branch(self, tokens: Tensor, positions: Tensor, longest: int, ancestors: Tensor) -> Tensor:
        x = self._embedding(tokens, positions, longest)
        hidden: Tensor = self._stack(x, Mask(allowed=ancestors[:, None]), positions, cache=self.cache.layers)
        return hidden


class TranslationReader(CachedReader):
    """An encoder-decoder that writes about sources: they are encoded, and their keys computed, once."""

    def __init__(self, model: Model, source: Tensor, source_present: Tensor | None = None) -> None:
        super().__init__(model)
        self.source_present = source_present
        self.memory: Tensor = model.base.encode(source, source_present)  # type: ignore[operator]
        self._has_sources = source_present is None or bool(source_present.any(dim=1).all())

    def select(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        super().select(rows)
        self.memory = self.memory[rows]
        if self.source_present is not None:
            self.source_present = self.source_present[rows]

    def _parts(self) -> tuple[Embedding, Stack]:
        base = self.model.base
        assert isinstance(base, EncoderDecoderBase)
        return base.target_embedding or base.embedding, base.decoder

    def _is_lean(self) -> bool:
        return self._has_sources and super()._is_lean()  # the model itself knows of sources of nothing

    def _step(self, tokens: Tensor, positions: Tensor, longest: int, allowed: Tensor | None) -> Tensor:
        seen = None if self.source_present is None else self.source_present[:, None]
        return self._lean(tokens, positions, longest, self.cache.layers, allowed, seen)

    def _read(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        hidden: Tensor = self.model.base.decode(  # type: ignore[operator]
            tokens, self.memory, memory_present=self.source_present, present=present, cache=self.cache
        )
        for _, cross in self.cache.layers:  # nothing is added to them: without room to grow less is copied
            cross.keys, cross.values = cross.held()
        return hidden

    def _branch(self, tokens: Tensor, positions: Tensor, longest: int, ancestors: Tensor) -> Tensor:
        memory_mask = build_mask(
            tokens.shape[1], self.memory.shape[1], causal=False, keys_present=self.source_present
        )
        hidden: Tensor = self._stack(
            self._embedding(tokens, positions, longest), Mask(allowed=ancestors[:, None]), positions,
            memory=self.memory, memory_mask=memory_mask, cache=self.cache.layers,
        )  # fmt: skip
        return hidden


class UncachedReader:
    """The same by reading everything again at each step: slow, simple, and what the cache is tested against."""

    def __init__(
        self, model: Model, source: Tensor | None = None, source_present: Tensor | None = None
    ) -> None:
        """With a source, of an encoder-decoder."""
        self.model, self.source, self.source_present = model, source, source_present
        self.tokens: Tensor | None = None  # (batch, ways, length), one way until it branches
        self.present: Tensor | None = None

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read all tokens; logits of the next one, (batch, vocab)."""
        present = torch.ones_like(tokens, dtype=torch.bool) if present is None else present
        self._append(tokens[:, None], present[:, None])
        return self._logits()[:, 0]

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Read a token in each way, after the way that `parents` names; logits (batch, ways, vocab)."""
        assert self.tokens is not None
        assert self.present is not None
        chosen = parents[..., None].expand(-1, -1, self.tokens.shape[-1])
        self.tokens, self.present = self.tokens.gather(1, chosen), self.present.gather(1, chosen)
        self._append(tokens[..., None], torch.ones_like(tokens[..., None], dtype=torch.bool))
        return self._logits()

    def select(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        assert self.tokens is not None
        assert self.present is not None
        self.tokens, self.present = self.tokens[rows], self.present[rows]
        self.source = None if self.source is None else self.source[rows]
        self.source_present = None if self.source_present is None else self.source_present[rows]

    def _append(self, tokens: Tensor, present: Tensor) -> None:
        self.tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens], dim=-1)
        self.present = present if self.present is None else torch.cat([self.present, present], dim=-1)

    def _logits(self) -> Tensor:
        assert self.tokens is not None
        assert self.present is not None
        ways = self.tokens.shape[1]
        tokens, present = self.tokens.flatten(0, 1), self.present.flatten(0, 1)
        if self.source is None:
            hidden = self.model.base(tokens, present=present)
        else:
            seen = self.source_present
            hidden = self.model.base(
                self.source.repeat_interleave(ways, dim=0), tokens, present=present,
                source_present=None if seen is None else seen.repeat_interleave(ways, dim=0),
            )  # fmt: skip
        logits: Tensor = self.model.head(hidden[:, -1])
        return logits.unflatten(0, (-1, ways))
