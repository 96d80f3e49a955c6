"""How long things take on this machine."""

import time
from collections.abc import Callable

import torch
from torch import nn

from headstart.model.attention import attend
from headstart.model.masks import Mask

_SECONDS_A_POINT = 0.3
_FEWEST_REPEATS = 5


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
    2017 counts neither, so they are shown as a line of their own.
    """
    place = torch.device(device)
    x = torch.randn(1, length, width, device=place)
    split = torch.randn(1, heads, length, width // heads, device=place)
    rows = x.transpose(1, 2).contiguous()
    recurrence = nn.LSTM(width, width, batch_first=True).to(place)
    convolution = nn.Conv1d(width, width, kernel, padding="same").to(place)
    projections = nn.Linear(width, 4 * width).to(place)
    return {
        "attention": seconds_of(lambda: attend(split, split, split, Mask()), place),
        "recurrence": seconds_of(lambda: recurrence(x), place),
        "convolution": seconds_of(lambda: convolution(rows), place),
        "attention's projections": seconds_of(lambda: projections(x), place),
    }
