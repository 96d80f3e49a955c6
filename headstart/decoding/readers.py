"""Models as a search sees them: with a cache, or slowly without one, which is the reference."""

import torch
from torch import Tensor

from headstart.model.model import Model


class CachedReader:
    """A causal language model that keeps what it has read."""

    def __init__(self, model: Model) -> None:
        self.model, self.cache = model, model.base.new_cache()

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read the new tokens; logits of the next one, (batch, vocab)."""
        hidden = self.model.base(tokens, present=present, cache=self.cache)
        return self.model.head(hidden[:, -1])

    def select(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        self.cache.select(rows)


class UncachedReader:
    """The same by reading everything again at each step: slow, simple, and what the cache is tested against."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tokens: Tensor | None = None
        self.present: Tensor | None = None

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read all tokens; logits of the next one, (batch, vocab)."""
        present = torch.ones_like(tokens, dtype=torch.bool) if present is None else present
        self.tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens], dim=1)
        self.present = present if self.present is None else torch.cat([self.present, present], dim=1)
        return self.model.head(self.model.base(self.tokens, present=self.present)[:, -1])

    def select(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        assert self.tokens is not None
        assert self.present is not None
        self.tokens, self.present = self.tokens[rows], self.present[rows]
