"""The table of "Attention is all you need": what a layer costs for each way of mixing positions."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class LayerCost(NamedTuple):
    """One row of the table; the formulas in symbols, the operations as a number for a given length."""

    layer: str
    formula: str
    operations: int
    sequential_steps: str
    longest_path: str


def layer_costs(length: int, width: int, kernel: int) -> list[LayerCost]:
    """Operations for one layer over a text of `length` vectors, as the paper counts them (multiplications)."""
    n, d, k = length, width, kernel
    return [
        LayerCost("attention", "n²·d", n * n * d, "1", "1"),
        LayerCost("recurrence", "n·d²", n * d * d, "n", "n"),
        LayerCost("convolution", "k·n·d²", k * n * d * d, "1", "n/k, or log n to base k if dilated"),
    ]


def crossing(
    lengths: Sequence[int], rising: Sequence[float], other: Sequence[float]
) -> tuple[float, float] | None:
    """The length and the value at which the rising line first passes the other, on a log-log picture."""
    for i in range(1, len(lengths)):
        before, after = rising[i - 1] / other[i - 1], rising[i] / other[i]
        if before < 1 <= after:
            share = math.log(1 / before) / math.log(after / before)
            length = lengths[i - 1] * (lengths[i] / lengths[i - 1]) ** share
            return length, rising[i - 1] * (rising[i] / rising[i - 1]) ** share
    return None
