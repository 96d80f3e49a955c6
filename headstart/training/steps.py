"""Step after step: on a GPU as recordings, over batches that are made ahead, so that it never waits for Python.

A small model's step is a thousand short kernels, and a Python loop cannot launch them as fast as they end. So a step
is recorded once for each shape of batch, and launched whole from then on: the same kernels in the same order.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from headstart.objectives.few_shapes import FewShapes, prepared
from headstart.objectives.objective import Batch, Tensors
from headstart.randomness import seed_of
from headstart.training.step import Outcome, Step

AHEAD = 4
Made = TypeVar("Made")


class Steps:
    """Batches and the steps over them: recorded and made ahead where that can be, else one after the other."""

    def __init__(self, step: Step, end: int, *, may_wait: bool, may_record: bool) -> None:
        """`may_wait` says that what a step found may be read later."""
        self._step, self.may_wait = step, may_wait
        self._recorded: RecordedStep | None = None
        if may_record and isinstance(step.objective, FewShapes):
            self._recorded = RecordedStep(step)
        self._ahead = Ahead(self._made, end) if self._recorded else None

    def take(self, number: int, accumulate: int, limit: float = math.inf) -> tuple[Batch, Outcome, int]:
        """A step: its batch, what it found, and in how many micro-batches it was taken."""
        if self._recorded is None or self._ahead is None or accumulate > 1:
            batch = self._step.objective.batch_at(self._step.seed, number)
        else:
            batch, tensors = self._ahead(number)
            try:
                return batch, self._recorded(tensors, number), 1
            except torch.OutOfMemoryError:
                self._recorded = None  # its recordings hold memory
                self._step.forget()
            except CannotRecord as error:
                self._recorded = None
                self._step.tell(f"steps are taken one by one, since they cannot be recorded: {error}")
        return batch, *self._step(batch, number, accumulate, limit)

    def _made(self, number: int) -> tuple[Batch, Tensors]:
        objective = self._step.objective
        assert isinstance(objective, FewShapes)
        batch = objective.batch_at(self._step.seed, number)
        return batch, page_locked(objective, batch)

    def close(self) -> None:
        """Make no more batches."""
        if self._ahead is not None:
            self._ahead.close()


class CannotRecord(Exception):
    """A step does what no recording can hold, such as asking the device for a number."""


class RecordedStep:
    """Takes steps like `Step`, over batches in page-locked memory; the first of a shape is taken as it is."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self._seen: set[Any] = set()
        self._graphs: dict[Any, tuple[torch.cuda.CUDAGraph, Tensors, Outcome]] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Tensors, step: int) -> Outcome:
        self.step.model.train()
        key = tuple((name, tensor.shape) for name, tensor in batch.items())
        if key not in self._seen:
            self._seen.add(key)
            device = self.step.machine.device
            there = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
            return self.step.update(self.step.gradients([there], step))
        if key not in self._graphs:
            self._graphs[key] = self._record(batch)
        graph, inputs, outcome = self._graphs[key]
        for name, tensor in batch.items():
            inputs[name].copy_(tensor, non_blocking=True)
        torch.manual_seed(seed_of(self.step.seed, "dropout", step, 0))
        graph.replay()
        return Outcome(outcome.names, outcome.values.clone())  # the next replay writes over it

    def _record(self, batch: Tensors) -> tuple[torch.cuda.CUDAGraph, Tensors, Outcome]:
        inputs = {name: tensor.to(self.step.machine.device) for name, tensor in batch.items()}
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        before = generator.clone_state()
        # The thread that makes batches locks pages meanwhile, which is no part of the recording.
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outcome = self.step.update(self.step.gradients([inputs], None))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.step.forget()
            generator.graphsafe_set_state(before)  # the generator believes that the recording goes on
            raise CannotRecord(str(error.__context__ or error).splitlines()[0]) from error
        return graph, inputs, outcome


def page_locked(objective: FewShapes, batch: Batch) -> Tensors:
    """A batch as the device can fetch it by itself, in one of few shapes."""
    arrays = prepared(objective, batch)
    return {key: torch.from_numpy(np.ascontiguousarray(array)).pin_memory() for key, array in arrays.items()}


class Ahead(Generic[Made]):
    """What steps need, made in a thread some steps before they need it."""

    def __init__(self, make: Callable[[int], Made], end: int) -> None:
        self._make, self._end = make, end
        self._thread = ThreadPoolExecutor(1, "batches")
        self._made: dict[int, Future[Made]] = {}

    def __call__(self, step: int) -> Made:
        """What was made for this step; the next ones are asked for."""
        for next_step in range(step, max(step + 1, min(step + AHEAD, self._end))):
            if next_step not in self._made:
                self._made[next_step] = self._thread.submit(self._make, next_step)
        return self._made.pop(step).result()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
