"""The places of a batch that have a target: found where the batch is made, so that a device never has to be asked.

A boolean mask would do the same, but how many it picks is known to the device alone, and asking it means waiting.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.model.heads import IGNORED
from headstart.objectives.objective import Batch, Tensors


def placed(batch: Batch, multiple: int = 1) -> Batch:
    """The batch and, for targets (examples, length): `places` that count, `wanted` there, and the way back.

    The list is filled up to a multiple with places whose target is IGNORED, so that its size seldom changes.
    `row_of` has for each place its row in the list, or the number of rows where it is not in it.
    """
    targets = batch.get("targets")
    if targets is None or targets.ndim < 2 or targets.dtype.kind != "i":
        return batch
    flat = targets.ravel()
    places = np.flatnonzero(flat != IGNORED)
    rows = -(-max(1, len(places)) // multiple) * multiple
    row_of = np.full(len(flat), rows)
    row_of[places] = np.arange(len(places))
    missing = rows - len(places)
    return {
        **batch,
        "places": np.pad(places, (0, missing)),
        "wanted": np.pad(flat[places], (0, missing), constant_values=IGNORED),
        "row_of": row_of,
    }


def picked(hidden: Tensor, batch: Tensors) -> Tensor:
    """The vectors at the batch's places, (places, width)."""
    return _Picked.apply(hidden.flatten(0, -2), batch["places"], batch["row_of"])


class _Picked(torch.autograd.Function):
    """Forward and backward are look-ups both: nothing is added up, so nothing depends on an order."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, places: Tensor, row_of: Tensor) -> Tensor:
        ctx.save_for_backward(row_of)
        return hidden.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None]:
        (row_of,) = ctx.saved_tensors
        with_nothing = torch.cat([slopes, slopes.new_zeros(1, slopes.shape[1])])
        return with_nothing.index_select(0, row_of), None, None
