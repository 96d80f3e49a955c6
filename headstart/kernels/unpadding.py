"""A batch without its padding: all texts one after another in one row, and the way back."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BF16_MULTIPLE = 64


class Varlen(NamedTuple):
    """Texts of various lengths one after another in one row of tokens: no padding, and none looks at another."""

    ends: tuple[int, ...]  # where each text ends, known without asking a device
    cu_seqlens: Tensor  # (texts + 1,) int32: where each begins, and where the last one ends
    max_seqlen: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> "Varlen":
        """Texts of these lengths."""
        ends = tuple(itertools.accumulate(lengths))
        return cls(ends, torch.tensor((0, *ends), dtype=torch.int32).to(device), max(lengths, default=0))

    @property
    def spans(self) -> list[slice]:
        """Where each text stands."""
        return [slice(first, end) for first, end in itertools.pairwise((0, *self.ends))]

    def positions(self) -> Tensor:
        """Where each token stands in its own text, (1, tokens)."""
        tokens, lengths = torch.arange(self.ends[-1], device=self.cu_seqlens.device), self.cu_seqlens.diff()
        starts = self.cu_seqlens[:-1].long().repeat_interleave(lengths, output_size=self.ends[-1])
        return (tokens - starts)[None]


class Unpadded(NamedTuple):
    """Texts in one row, (1, tokens), and where each token stood."""

    tokens: Tensor
    segments: Tensor | None
    varlen: Varlen
    texts: int  # without what fills up the row
    flat_index: Tensor  # (tokens,) in the flattened batch, of those that are of a text


def unpadding_pays(tokens: Tensor, present: Tensor | None, documents: Tensor | None) -> bool:
    """Whether a batch on a CPU has what unpadding saves: padding, or documents side by side."""
    if tokens.device.type != "cpu":  # a GPU would have to be waited for to know
        return False
    return documents is not None or (present is not None and not bool(present.all()) and bool(present.any()))


def unpad(
    tokens: Tensor, present: Tensor | None, documents: Tensor | None = None, segments: Tensor | None = None
) -> Unpadded:
    """The tokens (batch, length) that are present, in their order; each document in a row is one text."""
    is_present = torch.ones_like(tokens, dtype=torch.bool) if present is None else present
    index = is_present.flatten().nonzero()[:, 0]
    rows = index.div(tokens.shape[1], rounding_mode="floor")
    lengths = _lengths(rows, None if documents is None else documents.flatten()[index])
    # Products in bf16 are compiled for each shape that comes, so that few shapes are better than short ones.
    missing = -len(index) % (BF16_MULTIPLE if torch.is_autocast_enabled(tokens.device.type) else 1)

    def in_one_row(part: Tensor) -> Tensor:
        return F.pad(part.flatten()[index], (0, missing))[None]

    # Texts that fill up the row, none longer than those that are there: learned positions may end.
    whole, rest = divmod(missing, max(lengths))
    varlen = Varlen.of([*lengths, *[max(lengths)] * whole, *[rest] * (rest > 0)], tokens.device)
    row_segments = None if segments is None else in_one_row(segments)
    return Unpadded(in_one_row(tokens), row_segments, varlen, len(lengths), index)


def _lengths(rows: Tensor, documents: Tensor | None) -> list[int]:
    """How many tokens there are between changes of the row, or within a row of the document: both (tokens,)."""
    is_new = rows[1:] != rows[:-1]
    if documents is not None:
        is_new |= documents[1:] != documents[:-1]
    ends = [*(is_new.nonzero()[:, 0] + 1).tolist(), len(rows)]
    return [end - first for first, end in itertools.pairwise((0, *ends))]


def repad(hidden: Tensor, row: Unpadded, shape: torch.Size) -> Tensor:
    """The vectors where their tokens stood, (batch, length, width); zeros on padding."""
    padded = hidden.new_zeros(shape.numel(), hidden.shape[-1])
    return padded.index_copy(0, row.flat_index, hidden[0, : len(row.flat_index)]).view(*shape, -1)
