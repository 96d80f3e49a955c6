"""Models as a search sees them: with a cache, or slowly without one, which is the reference.

A search reads a prompt, and then goes on in one way (`read`) or in several (`branch`). The ways of a text share a
row: they stand side by side in one cache as if they were tokens of one sequence, and a mask says which of them each
way descends from. So a beam is never copied when it is reordered, and all ways of a translation look at the same
keys of its source.
"""

import torch
from torch import Tensor

from headstart.model.base import Cache
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

    def grow(self, parents: Tensor) -> tuple[Mask, Tensor]:
        """One token for each way, which goes on from its parent: whom it sees, and its position (rows, ways)."""
        rows, ways = parents.shape
        inherited = self.ancestors.gather(1, parents[..., None].expand(-1, -1, self.ancestors.shape[-1]))
        own = torch.eye(ways, dtype=torch.bool, device=parents.device).expand(rows, -1, -1)
        self.ancestors = torch.cat([inherited, own], dim=-1)
        positions = self.position.expand(-1, ways)
        self.position = self.position + 1
        self.longest += 1
        return Mask(allowed=self.ancestors[:, None]), positions

    def select(self, rows: Tensor) -> None:
        self.ancestors, self.position = self.ancestors[rows], self.position[rows]


class CachedReader:
    """A causal language model that keeps what it has read."""

    def __init__(self, model: Model) -> None:
        self.model, self.cache = model, model.base.new_cache()
        self._ways: _Ways | None = None

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read the new tokens; logits of the next one, (batch, vocab)."""
        assert self._ways is None, "what has branched is read by branching"
        return self.model.head(self._read(tokens, present)[:, -1])

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Read a token in each way, (batch, ways), after the way `parents` names; logits (batch, ways, vocab)."""
        self._ways = self._ways or _Ways(self.cache, tokens)
        mask, positions = self._ways.grow(parents)
        self.cache.length += tokens.shape[1]
        return self.model.head(self._branch(tokens, positions, self._ways.longest, mask))

    def select(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        self.cache.select(rows)
        if self._ways is not None:
            self._ways.select(rows)

    def _read(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        hidden: Tensor = self.model.base(tokens, present=present, cache=self.cache)
        return hidden

    def _branch(self, tokens: Tensor, positions: Tensor, longest: int, mask: Mask) -> Tensor:
        base = self.model.base
        x = base.embedding(tokens, positions, longest)
        hidden: Tensor = base.stack(x, mask, positions, cache=self.cache.layers)  # type: ignore[operator]
        return hidden


class TranslationReader(CachedReader):
    """An encoder-decoder that writes about sources: they are encoded, and their keys computed, once."""

    def __init__(self, model: Model, source: Tensor, source_present: Tensor | None = None) -> None:
        super().__init__(model)
        self.source_present = source_present
        self.memory: Tensor = model.base.encode(source, source_present)  # type: ignore[operator]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        super().select(rows)
        self.memory = self.memory[rows]
        if self.source_present is not None:
            self.source_present = self.source_present[rows]

    def _read(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        hidden: Tensor = self.model.base.decode(  # type: ignore[operator]
            tokens, self.memory, memory_present=self.source_present, present=present, cache=self.cache
        )
        for _, cross in self.cache.layers:  # nothing is added to them: without room to grow less is copied
            cross.keys, cross.values = cross.held()
        return hidden

    def _branch(self, tokens: Tensor, positions: Tensor, longest: int, mask: Mask) -> Tensor:
        base = self.model.base
        memory_mask = build_mask(
            tokens.shape[1], self.memory.shape[1], causal=False, keys_present=self.source_present
        )
        embedding = base.target_embedding or base.embedding
        hidden: Tensor = base.decoder(  # type: ignore[operator]
            embedding(tokens, positions, longest),  # type: ignore[operator]
            mask, positions, memory=self.memory, memory_mask=memory_mask, cache=self.cache.layers,
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
