"""A batch without its padding: all texts one after another in one row, and the way back."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.model.masks import Cuts, lengths_between

BF16_MULTIPLE = 64


class Packed(NamedTuple):
    """Texts in one row, (1, tokens), and where each token stood."""

    tokens: Tensor
    segments: Tensor | None
    cuts: Cuts
    texts: int  # without what fills up the row
    places: Tensor  # (tokens,) in the flattened batch, of those that are of a text


def pack(
    tokens: Tensor,
    present: Tensor | None = None,
    documents: Tensor | None = None,
    segments: Tensor | None = None,
) -> Packed:
    """The tokens (batch, length) that are present, in their order; a document in a row is a text of its own."""
    if present is None:
        places = torch.arange(tokens.numel(), device=tokens.device)
    else:
        places = present.flatten().nonzero()[:, 0]
    packed, its_documents, its_segments = (
        None if part is None else part.flatten()[places] for part in (tokens, documents, segments)
    )
    lengths = lengths_between(places.div(tokens.shape[1], rounding_mode="floor"), its_documents)
    texts, missing = len(lengths), -len(places) % _multiple(tokens.device)
    packed, its_segments = (
        None if part is None else F.pad(part, (0, missing))[None] for part in (packed, its_segments)
    )
    cuts = Cuts.of([*lengths, *_fillers(missing, max(lengths))], tokens.device)
    assert packed is not None
    return Packed(packed, its_segments, cuts, texts, places)


def _fillers(missing: int, longest: int) -> list[int]:
    """Lengths of texts that fill up a row, none longer than those that are there: positions may end."""
    whole, rest = divmod(missing, longest)
    return [longest] * whole + [rest] * (rest > 0)


def _multiple(device: torch.device) -> int:
    """Products in bf16 are compiled for each shape that comes, so that few shapes are better than short ones."""
    return BF16_MULTIPLE if torch.is_autocast_enabled(device.type) else 1


def unpack(hidden: Tensor, packed: Packed, shape: torch.Size) -> Tensor:
    """The vectors where their tokens stood, (batch, length, width); zeros on padding."""
    found = hidden.new_zeros(shape.numel(), hidden.shape[-1])
    return found.index_copy(0, packed.places, hidden[0, : len(packed.places)]).view(*shape, -1)


def pays(tokens: Tensor, present: Tensor | None, documents: Tensor | None) -> bool:
    """Whether a batch has what packing saves: padding, or documents side by side. Asks the device."""
    has_padding = present is not None and not bool(present.all()) and bool(present.any())
    return has_padding or documents is not None
