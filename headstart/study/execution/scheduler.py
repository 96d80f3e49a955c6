"""Decides which task runs next, which one is retried, and records how each ended.

A failed task does not stop the others. A task whose process dies is retried, because every task resumes from its
checkpoint; after three deaths without progress it has failed. A task that runs out of memory beside others is
retried with fewer tasks at a time. A task that wants a whole GPU runs beside no other task on it. There is room for
`jobs` tasks of `threads` threads each, and for more of those that need fewer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

ATTEMPTS = 3  # without progress
LEAST_PROGRESS = 0.01  # as a share of the task


@dataclass(frozen=True)
class ScheduledTask:
    """`argument` goes to the work function once the tasks in `after` are done."""

    name: str
    argument: Any
    cost: float = 1.0
    after: tuple[str, ...] = ()
    device: Literal["cpu", "gpu", "whole gpu"] = "cpu"
    threads: int = 1


class TaskResult(NamedTuple):
    """How a task ended."""

    name: str
    error: str | None
    seconds: float
    is_damaged: bool = False  # a file that it needs is not what was written


class TaskEnd(NamedTuple):
    """What a worker reports at the end of a task."""

    error: str | None = None
    is_out_of_memory: bool = False
    is_damaged: bool = False


class Scheduler:
    """The tasks that wait, those that run, and the results of the rest."""

    def __init__(
        self,
        tasks: Iterable[ScheduledTask],
        jobs: int,
        *,
        threads: int = 1,
        on_share: Callable[[str, float], None] = lambda name, share: None,
        on_result: Callable[[TaskResult], None] = lambda result: None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Runs at most `jobs` tasks of so many threads at once."""
        self.results: dict[str, TaskResult] = {}
        self._threads, self._most = jobs * threads, jobs * threads  # of all tasks at once; and tasks at once
        self._waiting = list(tasks)
        self._running: dict[str, bool] = {}  # whether another task has run beside it
        self._tasks = {task.name: task for task in self._waiting}
        self._on_share, self._on_result, self._log = on_share, on_result, log
        self._reached: dict[str, float] = {}
        self._warnings: set[str] = set()
        # The share at the last progress, and deaths since then.
        self._deaths: dict[str, tuple[float, int]] = {}

    def __bool__(self) -> bool:
        """Whether any task is not finished."""
        return bool(self._waiting or self._running)

    def next(self) -> list[ScheduledTask]:
        """Tasks to start now; a task that waits for a failed one fails too."""
        for task in list(self._waiting):
            for name in task.after:
                if name in self.results and self.results[name].error:
                    self._waiting.remove(task)
                    self._record(task, f"{name} failed, and this task depends on it", 0.0)
                    break
        ready = [task for task in self._waiting if all(name in self.results for name in task.after)]
        used = {self._tasks[name].device for name in self._running}
        room = self._threads - sum(self._tasks[name].threads for name in self._running)
        started: list[ScheduledTask] = []
        for task in ready:
            others = {"cpu": set(), "gpu": {"whole gpu"}, "whole gpu": {"gpu", "whole gpu"}}[task.device]
            has_room = task.threads <= room and len(self._running) + len(started) < self._most
            if has_room and not used & others:
                started.append(task)
                room -= task.threads
            used.add(task.device)  # also where it waits: it is next
        for task in started:
            self._waiting.remove(task)
            self._running[task.name] = False
        if len(self._running) > 1:
            self._running = dict.fromkeys(self._running, True)
        return started

    def progress(self, name: str, share: float) -> None:
        """This share of a task is done."""
        self._reached[name] = max(share, self._reached.get(name, 0.0))
        self._on_share(name, share)

    def warn(self, text: str) -> None:
        """A warning from a worker, once however many workers have it."""
        line = " ".join(text.split())
        if line not in self._warnings:
            self._warnings.add(line)
            self._log(line)

    def finish(self, task: ScheduledTask, end: TaskEnd, seconds: float) -> None:
        """A worker has finished a task."""
        was_beside_others = self._running.pop(task.name)
        if not end.is_out_of_memory or not was_beside_others:
            self._record(task, end.error, seconds, end.is_damaged)
            return
        self._most = max(1, self._most - 1)
        self._waiting.append(task)
        self._log(f"{task.name}: out of memory beside other tasks; retrying with {self._most} at a time")

    def lose(self, task: ScheduledTask, reason: str, seconds: float) -> None:
        """The process of a task died."""
        del self._running[task.name]
        reached = self._reached.get(task.name, 0.0)
        share, deaths = self._deaths.get(task.name, (reached, 0))
        if reached - share >= LEAST_PROGRESS:
            share, deaths = reached, 0
        self._deaths[task.name] = share, deaths + 1
        if deaths + 1 == ATTEMPTS:
            self._record(task, f"its process died {ATTEMPTS} times without progress ({reason})", seconds)
            return
        self._waiting.insert(0, task)
        self._log(f"{task.name}: its process died ({reason}); resuming (try {deaths + 2} of {ATTEMPTS})")

    def _record(self, task: ScheduledTask, error: str | None, seconds: float, is_damaged: bool = False) -> None:
        self.results[task.name] = TaskResult(task.name, error, seconds, is_damaged)
        self._on_result(self.results[task.name])
