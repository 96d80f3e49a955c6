"""Batches on their way to the model: cut into micro-batches, and turned into tensors."""

import itertools

import numpy as np
import torch

from headstart.objectives.objective import Batch, Tensors
from headstart.objectives.places import placed


def micro_batches(batch: Batch, parts: int) -> list[Batch]:
    """The batch in so many parts of nearly equal size, none of them empty."""
    size = len(batch["tokens"])
    edges = np.linspace(0, size, min(parts, size) + 1).round().astype(int)
    return [{key: array[a:b] for key, array in batch.items()} for a, b in itertools.pairwise(edges)]


def to_device(batch: Batch, device: torch.device) -> Tensors:
    """Arrays to tensors, where the model is, with the places that have a target."""
    batch = placed(batch)
    return {key: torch.from_numpy(np.ascontiguousarray(array)).to(device) for key, array in batch.items()}
