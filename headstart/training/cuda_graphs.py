"""Steps as CUDA graphs, over batches that are made ahead, so that a GPU never waits for Python.

A small model's step is a thousand short kernels, and a Python loop cannot launch them as fast as they end. So a step
is captured once for each shape of batch, and replayed from then on: the same kernels in the same order.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from headstart.objectives.batches import Batch, Tensors
from headstart.objectives.objective import Objective
from headstart.randomness import seed_of

AHEAD = 4


class _Cloneable(Protocol):
    def clone(self) -> Any: ...


Result = TypeVar("Result", bound=_Cloneable)


class CaptureFailed(Exception):
    """A step does what no graph can hold, such as asking the device for a number."""


class GraphedStep(Generic[Result]):
    """Takes the steps of a function as graphs, over pinned batches; the first step of a shape runs without a graph."""

    def __init__(
        self, step: Callable[[Sequence[Tensors], int | None], Result], seed: int, device: torch.device
    ) -> None:
        """`step` takes micro-batches and a step's number; without a number it leaves the random generator alone."""
        self._step, self._seed, self._device = step, seed, device
        self._seen: set[Any] = set()
        self._graphs: dict[Any, tuple[torch.cuda.CUDAGraph, Tensors, Result]] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Tensors, number: int) -> Result:
        key = tuple((name, tensor.shape) for name, tensor in batch.items())
        if key not in self._seen:
            self._seen.add(key)
            there = {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}
            return self._step([there], number)
        if key not in self._graphs:
            self._graphs[key] = self._capture(batch)
        graph, inputs, result = self._graphs[key]
        for name, tensor in batch.items():
            inputs[name].copy_(tensor, non_blocking=True)
        torch.manual_seed(seed_of(self._seed, "dropout", number, 0))
        graph.replay()
        return result.clone()  # the next replay writes over it

    def _capture(self, batch: Tensors) -> tuple[torch.cuda.CUDAGraph, Tensors, Result]:
        inputs = {name: tensor.to(self._device) for name, tensor in batch.items()}
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        before = generator.clone_state()
        # The thread that makes batches pins memory meanwhile, which is no part of the capture.
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = self._step([inputs], None)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            generator.graphsafe_set_state(before)  # the generator believes that the capture continues
            raise CaptureFailed(str(error.__context__ or error).splitlines()[0]) from error
        return graph, inputs, result


class Prefetcher:
    """Makes the batches of the next steps in a thread: as arrays, and pinned in a static shape."""

    def __init__(self, objective: Objective, seed: int, steps: int) -> None:
        self._objective, self._seed, self._steps = objective, seed, steps
        self._thread = ThreadPoolExecutor(1, "batches")
        self._batches: dict[int, Future[tuple[Batch, Tensors]]] = {}

    def __call__(self, number: int) -> tuple[Batch, Tensors]:
        """The batch of this step; the next ones are started."""
        for next_number in range(number, max(number + 1, min(number + AHEAD, self._steps))):
            if next_number not in self._batches:
                self._batches[next_number] = self._thread.submit(self._make, next_number)
        return self._batches.pop(number).result()

    def _make(self, number: int) -> tuple[Batch, Tensors]:
        batch = self._objective.batch_at(self._seed, number)
        static = {key: np.ascontiguousarray(one) for key, one in self._objective.static_batch(batch).items()}
        return batch, {key: torch.from_numpy(array).pin_memory() for key, array in static.items()}

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
