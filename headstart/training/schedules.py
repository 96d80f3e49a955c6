"""The learning rate as a function of the step, and of nothing else."""

import math
from typing import Literal

ScheduleName = Literal["linear", "cosine", "constant", "inverse-sqrt"]


def warm(step: int, warmup: int) -> float:
    """The warm-up: a straight line that reaches one at the end of the warm-up."""
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def linear(step: int, steps: int, warmup: int, cooldown: int) -> float:
    """Warm up, then a straight line to zero."""
    return warm(step, warmup) * _left(step, steps, warmup)


def cosine(step: int, steps: int, warmup: int, cooldown: int) -> float:
    """Warm up, then half a cosine to zero."""
    return warm(step, warmup) * (1 + math.cos(math.pi * (1 - _left(step, steps, warmup)))) / 2


def constant(step: int, steps: int, warmup: int, cooldown: int) -> float:
    """Warm up, stay, and cool down to zero in a straight line over the last steps."""
    return warm(step, warmup) * (min(1.0, (steps - step) / cooldown) if cooldown else 1.0)


def inverse_sqrt(step: int, steps: int, warmup: int, cooldown: int) -> float:
    """2017: warm up, then fall as one over the root of the step."""
    return min((step + 1) / max(warmup, 1), math.sqrt(max(warmup, 1) / (step + 1)))


def _left(step: int, steps: int, warmup: int) -> float:
    """The share of the steps after warm-up that is still to come; one until then, zero at the end."""
    return min(1.0, max(0.0, (steps - step) / max(1, steps - warmup)))


SCHEDULES = {"linear": linear, "cosine": cosine, "constant": constant, "inverse-sqrt": inverse_sqrt}
