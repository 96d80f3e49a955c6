"""Batches on their way to the model: cut into micro-batches, and turned into tensors."""

import itertools

import numpy as np
import torch

from headstart.objectives.objective import Batch, Tensors
from headstart.objectives.places import placed
from headstart.text.order import for_rank


def micro_batches(batch: Batch, parts: int) -> list[Batch]:
    """The batch in so many parts of nearly equal size, none of them empty."""
    size = len(batch["tokens"])
    edges = np.linspace(0, size, min(parts, size) + 1).round().astype(int)
    return [{key: array[a:b] for key, array in batch.items()} for a, b in itertools.pairwise(edges)]


def shares(batch: Batch, parts: int, rank: int, world: int) -> list[tuple[Batch, bool]]:
    """A rank's share of the batch in micro-batches: on all ranks as many, the last perhaps one that does not count."""
    if world == 1:
        return [(part, True) for part in micro_batches(batch, parts)]
    wanted = min(parts, -(-len(batch["tokens"]) // world))
    share = {key: for_rank(array, rank, world) for key, array in batch.items()}
    found = [(part, True) for part in micro_batches(share, wanted)] if len(share["tokens"]) else []
    nothing = {key: array[:1] for key, array in batch.items()}
    return found + [(nothing, False)] * (wanted - len(found))


def to_device(batch: Batch, device: torch.device) -> Tensors:
    """Arrays to tensors, where the model is, with the places that have a target."""
    batch = placed(batch)
    return {key: torch.from_numpy(np.ascontiguousarray(array)).to(device) for key, array in batch.items()}
