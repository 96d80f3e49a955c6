"""Batches in few shapes: filled up with what does not count, so that what was prepared for a shape serves again."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from headstart.objectives.objective import Batch
from headstart.objectives.places import placed

PLACES_MULTIPLE = 256


@runtime_checkable
class FewShapes(Protocol):
    """An objective whose batches can be filled up."""

    def filled(self, batch: Batch) -> Batch:
        """The batch in one of few shapes, with nothing more that counts."""


def prepared(objective: FewShapes, batch: Batch) -> Batch:
    """What goes to the device: filled up, with its places if it asks for them; the numbers of the rows stay behind."""
    filled = objective.filled({key: array for key, array in batch.items() if key != "rows"})
    return placed(filled, PLACES_MULTIPLE) if getattr(objective, "picks_places", True) else filled


def filled_up(
    batch: Batch,
    sequences: Mapping[str, int],
    rows: int,
    multiple: int,
    labels: Mapping[str, int] | None = None,
) -> Batch:
    """So many rows (or more, if there are more), and sequences up to a multiple of a length.

    `sequences` has for each array (examples, length) what it is filled up with, `labels` for those of an example
    each; what is in neither stays as it is.
    """
    found = dict(batch)
    for key, filler in {**sequences, **(labels or {})}.items():
        array = batch[key]
        edges = [(0, max(0, rows - len(array)))] + [(0, 0)] * (array.ndim - 1)
        if key in sequences:
            edges[1] = (0, -array.shape[1] % multiple)
        found[key] = np.pad(array, edges, constant_values=filler)
    return found
