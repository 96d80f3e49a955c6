"""Who may look at whom: the square subsequent mask, padding on either side, documents side by side."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Cuts(NamedTuple):
    """Texts one after another in one row of tokens: no padding, and none looks at another."""

    ends: tuple[int, ...]  # where each text ends, known without asking a device
    offsets: Tensor  # (texts + 1,) int32: where each begins, and where the last one ends
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> "Cuts":
        """The cuts between texts of these lengths."""
        ends = tuple(itertools.accumulate(lengths))
        return cls(ends, torch.tensor((0, *ends), dtype=torch.int32).to(device), max(lengths, default=0))

    @property
    def spans(self) -> list[slice]:
        """Where each text stands."""
        return [slice(first, end) for first, end in itertools.pairwise((0, *self.ends))]

    def positions(self) -> Tensor:
        """Where each token stands in its own text, (1, tokens)."""
        places = torch.arange(self.ends[-1], device=self.offsets.device)
        lengths = self.offsets.diff()
        starts = self.offsets[:-1].long().repeat_interleave(lengths, output_size=self.ends[-1])
        return (places - starts)[None]


def lengths_between(rows: Tensor, documents: Tensor | None) -> list[int]:
    """How many tokens there are between changes of the row, or within a row of the document: both (tokens,)."""
    is_new = rows[1:] != rows[:-1]
    if documents is not None:
        is_new |= documents[1:] != documents[:-1]
    ends = [*(is_new.nonzero()[:, 0] + 1).tolist(), len(rows)]
    return [end - first for first, end in itertools.pairwise((0, *ends))]


class Mask(NamedTuple):
    """What attention needs to know; the plain causal square is a flag, because kernels have a fast path for it."""

    causal_square: bool = False  # of each text, where there are cuts
    allowed: Tensor | None = None  # (batch or 1, 1, queries, keys), True where a query may look at a key
    # (batch, 1, queries, 1), True where a query may look at nothing: some kernels answer with NaN or noise. There
    # `allowed` is True everywhere, and attention sets what it gets to zero.
    sees_nothing: Tensor | None = None
    cuts: Cuts | None = None  # then the batch is one row, and the two above are None


def build_mask(
    query_length: int,
    key_length: int,
    *,
    causal: bool,
    device: torch.device | str = "cpu",
    keys_present: Tensor | None = None,
    query_documents: Tensor | None = None,
    key_documents: Tensor | None = None,
) -> Mask:
    """The mask for queries that stand at the end of the keys (they are fewer where a cache holds the past).

    `keys_present` (batch, keys) is False on padding; a query looks only at keys of its own document.
    """
    allowed: Tensor | None = None
    if keys_present is not None:
        allowed = keys_present[:, None, None, :]
    if query_documents is not None and key_documents is not None:
        same = (query_documents[:, :, None] == key_documents[:, None, :])[:, None]
        allowed = same if allowed is None else allowed & same
    if causal and query_length > 1:  # one query at the end has no future to hide
        if allowed is None and query_length == key_length:
            return Mask(causal_square=True)
        square = subsequent_mask(key_length, device)[key_length - query_length :]
        allowed = square[None, None] if allowed is None else allowed & square
    if keys_present is None or allowed is None:  # without padding a query sees itself at least
        return Mask(allowed=allowed)
    sees_nothing = ~allowed.any(dim=-1, keepdim=True)
    return Mask(allowed=allowed | sees_nothing, sees_nothing=sees_nothing)


def subsequent_mask(length: int, device: torch.device | str = "cpu") -> Tensor:
    """The square mask (queries, keys): True on and below the diagonal."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def token_positions(
    batch: int,
    length: int,
    device: torch.device,
    present: Tensor | None = None,
    documents: Tensor | None = None,
) -> Tensor:
    """Where each token stands in its own document, (batch or 1, length): padding is not counted."""
    if present is None and documents is None:
        return torch.arange(length, device=device)[None]
    if present is None:
        present = torch.ones(batch, length, dtype=torch.bool, device=device)
    before = present.long().cumsum(-1) - present.long()
    if documents is not None:
        starts = torch.zeros_like(before)
        new = documents[:, 1:] != documents[:, :-1]
        starts[:, 1:] = torch.where(new, before[:, 1:], 0)
        before = before - starts.cummax(-1).values
    return before
