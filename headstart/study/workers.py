"""Processes that work side by side on a list of tasks, of which some wait for others.

A task that raises has failed, and the others go on. A process that dies (killed, out of memory) or whose GPU fails,
with which nothing can be done in it any more, is replaced and its task tried again, since every task goes on where it
was; one that does not come further has failed too. When this process dies, its workers die with it.
"""

import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from headstart.errors import DeviceLost, HeadstartError
from headstart.training.signals import Stopped, StopRequests

ATTEMPTS = 3  # at one place
FURTHER = 0.01  # what a task has to come further, as a share of it, to be at another place
SHARE_SECONDS = 0.2  # between two words about how far a task is
STOP_SECONDS = 60.0

Work = Callable[[Any, Callable[[float], None]], None]


@dataclass(frozen=True)
class Task:
    """Something to do: `argument` goes to the work function, after the tasks that it waits for."""

    name: str
    argument: Any
    cost: float = 1.0
    after: tuple[str, ...] = ()


class Interrupted(HeadstartError):
    """All workers were asked to stop, and have saved where they were."""

    def __init__(self, number: int, finished: int) -> None:
        self.exit_code = 128 + number
        super().__init__(
            f"stopped by {signal.Signals(number).name} with {finished} tasks finished; the rest is saved",
            fix="run the same command again to go on",
        )


class Outcome(NamedTuple):
    """How a task ended."""

    name: str
    error: str | None
    seconds: float


class Tries:
    """How often each task lost its process, and whether it is tried again."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._reached: dict[str, float] = {}
        self._lost: dict[str, tuple[float, int]] = {}
        """Where a task was when it last came further, and how often it was lost there."""

    def heard(self, name: str, share: float) -> None:
        """A task is so far."""
        self._reached[name] = max(share, self._reached.get(name, 0.0))

    def lost(self, name: str, why: str) -> str | None:
        """A task lost its process; returns the error that it ends with, or None where it is to be tried again."""
        reached = self._reached.get(name, 0.0)
        place, count = self._lost.get(name, (reached, 0))
        if reached - place >= FURTHER:
            place, count = reached, 0
        self._lost[name] = place, count + 1
        if count + 1 == ATTEMPTS:
            return f"its process ended {ATTEMPTS} times ({why})"
        again = f"it goes on where it was (try {count + 2} of {ATTEMPTS})"
        self._tell(f"{name}: its process ended ({why}); {again}")
        return None


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: Task
    started: float = field(default_factory=time.monotonic)
    loss: str | None = None
    """What its GPU failed with."""


def carry_out(
    tasks: Iterable[Task],
    work: Work,
    jobs: int,
    *,
    on_share: Callable[[str, float], None] = lambda name, share: None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Outcome]:
    """Every task, at most `jobs` at once, in the given order where nothing has to wait."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])  # what is slow to import is imported once
    waiting, outcomes = list(tasks), dict[str, Outcome]()
    tries = Tries(tell)
    idle: list[_Worker] = []
    busy: list[_Worker] = []
    lifeline, held = context.Pipe(
        duplex=False
    )  # closed by the system when this process ends, however it ends

    def end(task: Task, error: str | None, seconds: float) -> None:
        outcomes[task.name] = Outcome(task.name, error, seconds)
        on_outcome(outcomes[task.name])

    def give(task: Task) -> None:
        while idle:
            worker = idle.pop()
            worker.task, worker.started = task, time.monotonic()
            try:
                worker.pipe.send(task.argument)
            except OSError:  # it died while it had nothing to do
                worker.process.join()
                continue
            busy.append(worker)
            return
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(work, there, lifeline), daemon=True)
        with _without_main():
            process.start()
        there.close()
        busy.append(_Worker(process, here, task))
        here.send(task.argument)

    with StopRequests() as requests:
        try:
            while waiting or busy:
                for task in ready(waiting, outcomes, end)[: jobs - len(busy)]:
                    waiting.remove(task)
                    give(task)
                multiprocessing.connection.wait([worker.pipe for worker in busy], timeout=SHARE_SECONDS)
                for worker in list(busy):
                    _listen(worker, busy, idle, waiting, tries, end, on_share)
                if requests.number:
                    _stop(busy)
                    raise Interrupted(requests.number, len(outcomes))
        finally:
            held.close()
            lifeline.close()
            for worker in (*busy, *idle):
                worker.process.kill()
                worker.process.join()
    return outcomes


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Children import what they need: multiprocessing would run the caller's script in each of them again."""
    main = sys.modules["__main__"]
    names: tuple[str, ...] = ("__file__", "__spec__")
    kept = {name: vars(main).pop(name) for name in names if name in vars(main)}
    vars(main)["__spec__"] = None
    try:
        yield
    finally:
        vars(main).update(kept)


def ready(
    waiting: list[Task], outcomes: dict[str, Outcome], end: Callable[[Task, str | None, float], None]
) -> list[Task]:
    """Tasks whose time has come; those that waited for a task that failed have failed with it."""
    for task in list(waiting):
        for name in task.after:
            if name in outcomes and outcomes[name].error:
                waiting.remove(task)
                end(task, f"{name} failed, on which it builds", 0.0)
                break
    return [task for task in waiting if all(name in outcomes for name in task.after)]


def _listen(
    worker: _Worker,
    busy: list[_Worker],
    idle: list[_Worker],
    waiting: list[Task],
    tries: Tries,
    end: Callable[[Task, str | None, float], None],
    on_share: Callable[[str, float], None],
) -> None:
    """Hear all that a worker has to say."""
    try:
        while worker.pipe.poll():
            kind, value = worker.pipe.recv()
            if kind == "share":
                tries.heard(worker.task.name, value)
                on_share(worker.task.name, value)
                continue
            if kind == "lost":
                worker.loss = value
                continue
            busy.remove(worker)
            idle.append(worker)
            end(worker.task, value, time.monotonic() - worker.started)
            return
    except (EOFError, OSError):
        busy.remove(worker)
        worker.process.join()
        error = tries.lost(worker.task.name, worker.loss or _ending(worker.process.exitcode))
        if error is None:
            waiting.insert(0, worker.task)
        else:
            end(worker.task, error, time.monotonic() - worker.started)


def _ending(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _stop(workers: list[_Worker]) -> None:
    """Ask for an end: each finishes its step and saves."""
    for worker in workers:
        worker.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))


# ---- in the worker's process --------------------------------------------------------------------------------


def _serve(work: Work, pipe: Connection, lifeline: Connection) -> None:
    """Take a task, do it, say how it ended, take the next."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everyone: who started us decides
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    while True:
        argument = pipe.recv()
        try:
            error = error_of(work, argument, seldom(lambda share: pipe.send(("share", share))))
        except Stopped:
            raise SystemExit(0) from None
        except DeviceLost as lost:
            pipe.send(("lost", str(lost)))
            os._exit(1)
        pipe.send(("end", error))


def error_of(work: Work, argument: Any, on_share: Callable[[float], None]) -> str | None:
    """Do a task; returns what went wrong, if anything did. A process whose GPU has failed does no more tasks."""
    found = None
    try:
        work(argument, on_share)
    except (Stopped, DeviceLost):
        raise
    except HeadstartError as known:
        found = str(known)
    except Exception as error:
        import torch  # which such work has imported long since, and whoever only waits for it need not

        if isinstance(error, torch.AcceleratorError):  # outside of training, which says it by itself
            raise DeviceLost(str(error).splitlines()[0]) from error
        found = traceback.format_exc(limit=-3).strip()
    _give_memory_back()
    return found


def _give_memory_back() -> None:
    """What torch keeps of a GPU for later: the next task may be a smaller one, and others need the room."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def seldom(say: Callable[[float], object]) -> Callable[[float], None]:
    """Say how far a task is, but not at every step."""
    said = 0.0

    def on_share(share: float) -> None:
        nonlocal said
        if time.monotonic() - said > SHARE_SECONDS:
            said = time.monotonic()
            say(share)

    return on_share


def _end_with_parent(lifeline: Connection) -> None:
    """Nothing is ever sent: the read ends when whoever started us is gone."""
    try:
        lifeline.recv()
    except EOFError:
        os._exit(1)
