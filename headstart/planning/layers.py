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
_SECONDS_A_ROUND = 0.1

# Rounds over all lengths, more while two of them disagree by more than this factor on what is fastest.
ROUNDS, MOST_ROUNDS, STEADY = 3, 6, 1.25


def seconds_of(
    function: Callable[[], object], device: torch.device, seconds: float = _SECONDS_A_POINT,
    repeats: int = _FEWEST_REPEATS,
) -> float:  # fmt: skip
    """The fastest of many calls, after one to warm up: what disturbs a measurement only adds to it."""

    def once() -> float:
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    once()
    times: list[float] = []
    while len(times) < repeats or sum(times) < seconds:
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
        name: seconds_of(layer, on, _SECONDS_A_ROUND, repeats=2)
        for name, layer in {
            "attention": lambda: attend(split, split, split, Mask()),
            "recurrence": lambda: recurrence(x),
            "convolution": lambda: convolution(rows),
            "attention's projections": lambda: projections(x),
        }.items()
    }


class LayerTimes(NamedTuple):
    """The seconds that a layer takes at each length, and at which of them they cannot be trusted."""

    seconds: list[float]  # in the fastest round
    is_noisy: list[bool]  # the next fastest round took longer by far, or a longer text took less


def layer_times(
    lengths: Sequence[int], width: int, kernel: int, heads: int, device: str,
    on_share: Callable[[float], None] = lambda share: None,
) -> dict[str, LayerTimes]:  # fmt: skip
    """Measure the layers at all lengths, round after round: what disturbs one round of a length misses the next."""
    rounds: dict[str, list[list[float]]] = {}
    times: dict[str, LayerTimes] = {}
    for number in range(MOST_ROUNDS):
        found = []
        for length in lengths:
            found.append(measure_layers(length, width, kernel, heads, device))
            on_share(min(1.0, (number * len(lengths) + len(found)) / (ROUNDS * len(lengths))))
        for name in found[0]:
            rounds.setdefault(name, []).append([seconds[name] for seconds in found])
        if number + 1 >= ROUNDS:
            times = {name: times_of(each) for name, each in rounds.items()}
            if not any(any(one.is_noisy) for one in times.values()):
                break
    return times


def times_of(rounds: Sequence[Sequence[float]]) -> LayerTimes:
    """What two rounds or more tell of a layer, each with the seconds at every length, rising."""
    ordered = [sorted(each) for each in zip(*rounds, strict=True)]
    fastest = [each[0] for each in ordered]
    is_noisy = [each[1] > STEADY * each[0] or each[0] > 2 * min(fastest[index:]) for index, each in enumerate(ordered)]
    return LayerTimes(fastest, is_noisy)


def measured_crossing(
    lengths: Sequence[int], rising: LayerTimes, other: LayerTimes
) -> tuple[tuple[float, float] | None, bool]:
    """Where the lines cross, if they do; and whether the times around it (without a crossing: all) can be trusted."""
    point = crossing(lengths, rising.seconds, other.seconds)
    around = range(len(lengths))
    if point is not None:
        after = next(index for index, length in enumerate(lengths) if length >= point[0])
        around = range(max(0, after - 1), after + 1)
    return point, not any(one.is_noisy[index] for one in (rising, other) for index in around)
