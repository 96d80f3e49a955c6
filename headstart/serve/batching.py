"""Requests that arrive together are one batch.

Each run has a thread. It takes all waiting requests; those that arrive meanwhile are the next batch. So a lone request
never waits for others, and batches grow with the load. A batch that nobody waits for any more ends at its next step.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

import torch

from headstart.cancellation import Cancelled, cancelled_when

Item = TypeVar("Item")
Result = TypeVar("Result")
BatchFunction = Callable[[Sequence[Item]], Iterator[tuple[int, Result]]]
MOST_ITEMS = 256


class Answer(Future[Result]):
    """A future that knows, while it is computed too, that nobody waits for it any more."""

    is_cancelled = False

    def cancel(self) -> bool:
        self.is_cancelled = True
        return super().cancel()


class Batcher(Generic[Item, Result]):
    """Threads that compute batches of items."""

    def __init__(self, work: BatchFunction[Item, Result], most_items: int = MOST_ITEMS, threads: int = 1) -> None:
        """`work` yields the index and the result of each item, in any order."""
        self._work, self._most_items = work, most_items
        self._waiting: deque[tuple[Item, Answer[Result]]] = deque()
        self._has_changed, self._is_closed = threading.Condition(), False
        self._threads = [threading.Thread(target=self._serve, name="batches", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, item: Item) -> Answer[Result]:
        """Queue an item; a future that is cancelled before its turn is skipped."""
        future = Answer[Result]()
        with self._has_changed:
            if self._is_closed:
                raise RuntimeError("the batcher is closed")
            self._waiting.append((item, future))
            self._has_changed.notify()
        return future

    def close(self) -> None:
        """End the threads after their current batches; waiting items are cancelled."""
        with self._has_changed:
            self._is_closed = True
            self._has_changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        with torch.inference_mode():
            while batch := self._next():
                self._do(*map(list, zip(*batch, strict=True)))

    def _next(self) -> list[tuple[Item, Answer[Result]]]:
        """The waiting items, as soon as there are any; none at the end."""
        with self._has_changed:
            while True:
                self._has_changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    while self._waiting:
                        self._waiting.popleft()[1].cancel()
                    return []
                taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most_items))]
                if wanted := [one for one in taken if one[1].set_running_or_notify_cancel()]:
                    return wanted

    def _do(self, items: list[Item], futures: list[Answer[Result]]) -> None:
        try:
            with cancelled_when(lambda: all(future.is_cancelled or future.done() for future in futures)):
                for index, result in self._work(items):
                    futures[index].set_result(result)
        except BaseException as error:
            left = [index for index, future in enumerate(futures) if not future.done()]
            if len(items) == 1 or isinstance(error, Cancelled):
                for index in left:
                    futures[index].set_exception(error)
            else:  # one bad item must not fail the others
                for index in left:
                    self._do([items[index]], [futures[index]])
