"""Weights averaged over steps: a moving average, or the mean over the tail of the training."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headstart.config.training import AverageName
from headstart.runs.shards import like

TAIL_SHARE = 0.2
TAIL_POINTS = 50


class Average:
    """Keeps the average beside the weights, and is saved with the optimizer."""

    def __init__(self, model: nn.Module, kind: AverageName, decay: float) -> None:
        self.kind, self.decay, self.count = kind, decay, 0
        self.tensors: dict[str, Tensor] = {}
        self._model = model

    @torch.no_grad()
    def update(self, step: int, steps: int) -> None:
        """After a step: include the new weights."""
        if self.kind == "none" or (self.kind == "tail" and not _is_tail_point(step, steps)):
            return
        self.count += 1
        # A moving average starts as a plain mean, or its first value would dominate for long.
        keep = 1 - 1 / self.count
        keep = min(self.decay, keep) if self.kind == "ema" else keep
        weights = dict(self._model.named_parameters())
        if not self.tensors:
            self.tensors = {name: parameter.detach().clone() for name, parameter in weights.items()}
            return
        averages = [self.tensors[name] for name in weights]
        torch._foreach_mul_(averages, keep)
        torch._foreach_add_(averages, list(weights.values()), alpha=1 - keep)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within `with`, the model has the average for its weights."""
        if not self.tensors:
            yield
            return
        own = {name: parameter.detach().clone() for name, parameter in self._model.named_parameters()}
        self.put(self.tensors)
        try:
            yield
        finally:
            self.put(own)

    @torch.no_grad()
    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Make these the model's weights."""
        for name, parameter in self._model.named_parameters():
            parameter.copy_(tensors[name])

    def state_tensors(self) -> dict[str, Tensor]:
        """For the checkpoint: `average|name`."""
        return {f"average|{name}": tensor for name, tensor in self.tensors.items()}

    def load(self, tensors: Mapping[str, Tensor], count: int) -> None:
        """From the checkpoint."""
        self.count = count
        for name, parameter in self._model.named_parameters():
            if (tensor := tensors.get(f"average|{name}")) is not None:
                self.tensors[name] = like(tensor, parameter).clone()


def _is_tail_point(step: int, steps: int) -> bool:
    """Whether the weights after this step are included: about fifty steps, evenly over the last fifth, and the last."""
    left = steps - 1 - step
    tail = max(1, round(TAIL_SHARE * steps))
    return left < tail and left % max(1, tail // TAIL_POINTS) == 0
