"""The cost of a layer by how it mixes positions: on paper, as in "Attention is all you need", and measured."""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from headstart.kernels.attention import attend
from headstart.model.attention import Mask


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


def crossing(lengths: Sequence[int], rising: Sequence[float], other: Sequence[float]) -> tuple[float, float] | None:
    """The length and the value at which the rising line first passes the other, on a log-log picture."""
    for i in range(1, len(lengths)):
        before, after = rising[i - 1] / other[i - 1], rising[i] / other[i]
        if before < 1 <= after:
            share = math.log(1 / before) / math.log(after / before)
            length = lengths[i - 1] * (lengths[i] / lengths[i - 1]) ** share
            return length, rising[i - 1] * (rising[i] / rising[i - 1]) ** share
    return None


_SECONDS_A_POINT, _FEWEST_REPEATS = 0.3, 5


def seconds_of(function: Callable[[], object], device: torch.device) -> float:
    """The fastest of many calls, after one to warm up: what disturbs a measurement only adds to it."""

    def once() -> float:
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    once()
    times: list[float] = []
    while len(times) < _FEWEST_REPEATS or sum(times) < _SECONDS_A_POINT:
        times.append(once())
    return min(times)


@torch.inference_mode()
def measure_layers(length: int, width: int, kernel: int, heads: int, device: str) -> dict[str, float]:
    """Seconds of one forward pass over one text: attention without its projections, an LSTM, a convolution.

    The projections of attention cost 4·n·d² besides, as the matrices of the LSTM cost 8·n·d²: the table of
    2017 counts neither, so they are shown as a separate line.
    """
    on = torch.device(device)
    x = torch.randn(1, length, width, device=on)
    split = torch.randn(1, heads, length, width // heads, device=on)
    rows = x.transpose(1, 2).contiguous()
    recurrence = nn.LSTM(width, width, batch_first=True).to(on)
    convolution = nn.Conv1d(width, width, kernel, padding="same").to(on)
    projections = nn.Linear(width, 4 * width).to(on)
    return {
        "attention": seconds_of(lambda: attend(split, split, split, Mask()), on),
        "recurrence": seconds_of(lambda: recurrence(x), on),
        "convolution": seconds_of(lambda: convolution(rows), on),
        "attention's projections": seconds_of(lambda: projections(x), on),
    }
