"""What the loop asks of an objective, and nothing more."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from headstart.model.model import Model
from headstart.model.presets import HeadConfig

# Every array has the examples as its first dimension, so that a batch can be cut into micro-batches and ranks.
Batch = dict[str, np.ndarray]
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Loss:
    """A sum and what it is divided by, once, over all micro-batches and ranks; `log` has such pairs too."""

    sum: Tensor
    count: Tensor
    log: dict[str, tuple[Tensor, Tensor]]


class Objective(Protocol):
    """Turns examples into a batch (corrupts, shifts, pads) and gives the loss."""

    @property
    def head(self) -> HeadConfig:
        """The head that this objective trains."""

    def steps_in(self, epochs: float, seed: int) -> int:
        """How many steps so many passes over the examples take."""

    def batch_at(self, seed: int, step: int) -> Batch:
        """The global batch of a step: a function of (seed, step) alone."""

    def loss(self, model: Model, batch: Tensors) -> Loss:
        """The loss over a batch, or over some of its examples."""

    def evaluation(self) -> Iterator[Batch]:
        """Every example once, in an order and with a corruption that never change."""
