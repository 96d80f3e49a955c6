"""Batches between an objective and the model: micro-batches, ranks, tensors, target positions, padding."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.model.heads import IGNORED

# Every array has the examples as its first dimension, so that a batch can be cut into micro-batches and ranks.
Batch = dict[str, np.ndarray]
Tensors = dict[str, Tensor]
CU_SEQLENS_MULTIPLE = 256


def micro_batches(batch: Batch, parts: int) -> list[Batch]:
    """The batch in so many parts of nearly equal size, none of them empty."""
    size = len(batch["tokens"])
    edges = np.linspace(0, size, min(parts, size) + 1).round().astype(int)
    return [{key: array[a:b] for key, array in batch.items()} for a, b in itertools.pairwise(edges)]


def rank_micro_batches(batch: Batch, parts: int, rank: int, world: int) -> list[tuple[Batch, bool]]:
    """One rank's micro-batches, the same number on all ranks; False marks one that only fills up and must not count."""
    if world == 1:
        return [(part, True) for part in micro_batches(batch, parts)]
    wanted = min(parts, -(-len(batch["tokens"]) // world))
    share = {key: array[rank::world] for key, array in batch.items()}
    own = [(part, True) for part in micro_batches(share, wanted)] if len(share["tokens"]) else []
    filler = {key: array[:1] for key, array in batch.items()}
    return own + [(filler, False)] * (wanted - len(own))


def to_device(batch: Batch, device: torch.device) -> Tensors:
    """Arrays to tensors on the model's device, with target positions."""
    batch = with_target_positions(batch)
    return {key: torch.from_numpy(np.ascontiguousarray(array)).to(device) for key, array in batch.items()}


# ---- target positions ---------------------------------------------------------------------------------------
# A boolean mask would select the same, but only the device knows how many it selects: asking it means waiting.


def with_target_positions(batch: Batch, multiple: int = 1) -> Batch:
    """Add, for targets (examples, length), the flat `positions` that have a target and `position_targets`.

    Both are padded to a multiple (with IGNORED as the target), so that their size seldom changes. `position_index`
    has for each token its index in `positions`, or the size of `positions` for a token without a target.
    """
    targets = batch.get("targets")
    if targets is None or targets.ndim < 2 or targets.dtype.kind != "i":
        return batch
    flat = targets.ravel()
    positions = np.flatnonzero(flat != IGNORED)
    size = -(-max(1, len(positions)) // multiple) * multiple
    index = np.full(len(flat), size)
    index[positions] = np.arange(len(positions))
    missing = size - len(positions)
    return {
        **batch,
        "positions": np.pad(positions, (0, missing)),
        "position_targets": np.pad(flat[positions], (0, missing), constant_values=IGNORED),
        "position_index": index,
    }


def select_positions(hidden: Tensor, batch: Tensors) -> Tensor:
    """The hidden vectors at the batch's target positions, (positions, width)."""
    return _SelectPositions.apply(hidden.flatten(0, -2), batch["positions"], batch["position_index"])


class _SelectPositions(torch.autograd.Function):
    """Forward and backward are look-ups: nothing is summed, so the result cannot depend on an order."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, positions: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        return hidden.index_select(0, positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        with_zeros = torch.cat([grads, grads.new_zeros(1, grads.shape[1])])
        return with_zeros.index_select(0, index), None, None


# ---- static shapes ------------------------------------------------------------------------------------------


def pad_batch(batch: Batch, padding: Mapping[str, int], rows: int, multiple: int) -> Batch:
    """Pad the arrays that `padding` has a value for, to so many rows at least; sequences to a multiple."""
    padded = dict(batch)
    for key, value in padding.items():
        array = batch[key]
        edges = [(0, max(0, rows - len(array))), (0, -array.shape[-1] % multiple)]
        padded[key] = np.pad(array, edges[: array.ndim], constant_values=value)
    return padded


def with_cu_seqlens(batch: Batch) -> Batch:
    """Add `cu_seqlens`: where documents begin in the row of all blocks, anew in each; empty ones pad."""
    documents = batch.get("documents")
    if documents is None:
        return batch
    begins = np.ones(documents.shape, bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = np.flatnonzero(begins)
    missing = CU_SEQLENS_MULTIPLE - len(starts) % CU_SEQLENS_MULTIPLE  # at least one: where the last one ends
    cu_seqlens = np.pad(starts, (0, missing), constant_values=documents.size)
    return {**batch, "cu_seqlens": cu_seqlens.astype(np.int32)}
