"""A model as a search sees it, without a cache: the reference for those with one."""

import torch
from torch import Tensor

from headstart.model.model import Model


class UncachedReader:
    """Reads everything again at each step: slow, simple, and the reference for the cache."""

    def __init__(self, model: Model, source: Tensor | None = None, source_present: Tensor | None = None) -> None:
        """With a source, of an encoder-decoder."""
        self.model, self.source, self.source_present = model, source, source_present
        self.tokens: Tensor | None = None  # (batch, beams, length), one beam until it branches
        self.present: Tensor | None = None

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read all tokens; logits of the next one, (batch, vocab)."""
        present = torch.ones_like(tokens, dtype=torch.bool) if present is None else present
        self._append(tokens[:, None], present[:, None])
        return self._logits()[:, 0]

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Read a token for each beam after its parent; logits (batch, beams, vocab)."""
        assert self.tokens is not None
        assert self.present is not None
        chosen = parents[..., None].expand(-1, -1, self.tokens.shape[-1])
        self.tokens, self.present = self.tokens.gather(1, chosen), self.present.gather(1, chosen)
        self._append(tokens[..., None], torch.ones_like(tokens[..., None], dtype=torch.bool))
        return self._logits()

    def select(self, rows: Tensor) -> None:
        """Continue with these rows only, in this order."""
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
        beams = self.tokens.shape[1]
        tokens, present = self.tokens.flatten(0, 1), self.present.flatten(0, 1)
        if self.source is None:
            hidden = self.model.base(tokens, present=present)
        else:
            seen = self.source_present
            hidden = self.model.base(
                self.source.repeat_interleave(beams, dim=0), tokens, present=present,
                source_present=None if seen is None else seen.repeat_interleave(beams, dim=0),
            )  # fmt: skip
        logits: Tensor = self.model.head(hidden[:, -1])
        return logits.unflatten(0, (-1, beams))
