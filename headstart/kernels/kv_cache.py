"""What a decoder has read so far, so that each new token costs one step and not the whole text again."""

import torch
from torch import Tensor


class LayerCache:
    """The keys and values that one attention layer has seen, in a buffer that doubles when it is full."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.length = 0

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append, and return all so far, (batch, heads, length, head width)."""
        self.keys, self.values = self._appended(self.keys, key), self._appended(self.values, value)
        self.length += key.shape[2]
        return self.contents()

    def _appended(self, buffer: Tensor | None, new: Tensor) -> Tensor:
        batch, heads, count, head_width = new.shape
        total = self.length + count
        if buffer is None or buffer.shape[2] < total:
            larger = new.new_empty(batch, heads, max(2 * total, 64), head_width)
            if buffer is not None:
                larger[:, :, : self.length] = buffer[:, :, : self.length]
            buffer = larger
        buffer.narrow(2, self.length, count).copy_(new)
        return buffer

    def contents(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order: a beam is reordered, a finished text leaves."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class Cache:
    """The caches of every layer of a stack (self-attention, cross-attention), and which tokens were real."""

    def __init__(self, depth: int) -> None:
        self.layers = [(LayerCache(), LayerCache()) for _ in range(depth)]
        self.present: Tensor | None = None  # (batch, length); None while no padding has been seen
        self.length = 0

    def extend(self, tokens: Tensor, present: Tensor | None) -> Tensor | None:
        """Take note of new tokens, and return which of all are real (None: all)."""
        batch, new = tokens.shape
        if self.present is not None or present is not None:
            ones = tokens.new_ones(batch, 1, dtype=torch.bool)
            before = ones.expand(-1, self.length) if self.present is None else self.present
            self.present = torch.cat([before, ones.expand(-1, new) if present is None else present], dim=1)
        self.length += new
        return self.present

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.present = None if self.present is None else self.present[rows]
        for own, cross in self.layers:
            own.select(rows)
            cross.select(rows)
