"""Processes that work side by side on a list of tasks.

One that dies (killed, out of memory) or whose GPU fails, with which nothing can be done in it any more, is replaced
(agenda.py says which tasks are tried again). When this process dies, its workers die with it.
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
from typing import Any

from headstart.errors import DeviceLost, HeadstartError, MemoryFull
from headstart.forking import without_current_directory
from headstart.study.agenda import Agenda, Ending, Outcome, Task
from headstart.training.signals import Stopped, StopRequests

SHARE_SECONDS = 0.2  # between two words about how far a task is
STOP_SECONDS = 60.0

Work = Callable[[Any, Callable[[float], None]], None]


class Interrupted(HeadstartError):
    """All workers were asked to stop, and have saved where they were."""

    def __init__(self, number: int, finished: int) -> None:
        self.exit_code = 128 + number
        super().__init__(
            f"stopped by {signal.Signals(number).name} with {finished} tasks finished; the rest is saved",
            fix="run the same command again to go on",
        )


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: Task
    started: float = field(default_factory=time.monotonic)
    loss: str | None = None
    """What its GPU failed with."""

    @property
    def seconds(self) -> float:
        """That it has been at its task."""
        return time.monotonic() - self.started


def carry_out(
    tasks: Iterable[Task], work: Work, jobs: int, **hear: Callable[..., None]
) -> dict[str, Outcome]:
    """Every task, at most `jobs` at once, in the given order where nothing has to wait; `hear` as Agenda has it."""
    crew = _Crew(Agenda(tasks, jobs, **hear), work)
    with StopRequests() as requests:
        try:
            crew.carry_out(requests)
        finally:
            crew.end()
    return crew.agenda.outcomes


class _Crew:
    """Processes, and what they are to do."""

    def __init__(self, agenda: Agenda, work: Work) -> None:
        self.agenda, self._work = agenda, work
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([work.__module__])  # what is slow to import is imported once
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        # Closed by the system when this process ends, however it ends.
        self._lifeline, self._held = self._context.Pipe(duplex=False)

    def carry_out(self, requests: StopRequests) -> None:
        while self.agenda:
            for task in self.agenda.next():
                self._give(task)
            multiprocessing.connection.wait([one.pipe for one in self._busy], timeout=SHARE_SECONDS)
            for worker in list(self._busy):
                self._listen(worker)
            if requests.number:
                self._stop()
                raise Interrupted(requests.number, len(self.agenda.outcomes))

    def end(self) -> None:
        """Whatever they are doing."""
        self._held.close()
        self._lifeline.close()
        for worker in (*self._busy, *self._idle):
            worker.process.kill()
            worker.process.join()

    def _give(self, task: Task) -> None:
        while self._idle:
            worker = self._idle.pop()
            worker.task, worker.started = task, time.monotonic()
            try:
                worker.pipe.send(task.argument)
            except OSError:  # it died while it had nothing to do
                worker.process.join()
                continue
            self._busy.append(worker)
            return
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(self._work, there, self._lifeline), daemon=True)
        with _without_main(), without_current_directory():
            process.start()
        there.close()
        self._busy.append(_Worker(process, here, task))
        here.send(task.argument)

    def _listen(self, worker: _Worker) -> None:
        """Hear all that a worker has to say."""
        while True:
            try:
                if not worker.pipe.poll():
                    return
                said = worker.pipe.recv()
            except (EOFError, OSError):
                break
            if isinstance(said, float):
                self.agenda.heard(worker.task.name, said)
            elif isinstance(said, str):
                worker.loss = said
            else:
                self._busy.remove(worker)
                self._idle.append(worker)
                self.agenda.ended(worker.task, said, worker.seconds)
                return
        self._busy.remove(worker)
        worker.process.join()
        self.agenda.lost(worker.task, worker.loss or _ending(worker.process.exitcode), worker.seconds)

    def _stop(self) -> None:
        """Ask for an end: each finishes its step and saves."""
        for worker in self._busy:
            worker.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._busy:
            worker.process.join(max(0.0, deadline - time.monotonic()))


def _ending(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


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


# ---- in the worker's process --------------------------------------------------------------------------------


def _serve(work: Work, pipe: Connection, lifeline: Connection) -> None:
    """Take a task, do it, say how it ended, take the next."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everyone: who started us decides
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    while True:
        argument = pipe.recv()
        try:
            ending = ending_of(work, argument, seldom(lambda share: pipe.send(float(share))))
        except Stopped:
            raise SystemExit(0) from None
        except DeviceLost as lost:
            pipe.send(str(lost))
            os._exit(1)
        pipe.send(ending)


def ending_of(work: Work, argument: Any, on_share: Callable[[float], None]) -> Ending:
    """Do a task; returns what went wrong, if anything did. A process whose GPU has failed does no more tasks."""
    import torch  # which such work has imported long since, and whoever only waits for it need not

    from headstart.training.memory import is_full

    ending = Ending()
    try:
        try:
            work(argument, on_share)
        except (Stopped, DeviceLost):
            raise
        except HeadstartError as known:
            ending = Ending(str(known), isinstance(known, MemoryFull))
        except Exception as error:
            if isinstance(error, torch.AcceleratorError) and not is_full(error):
                raise
            ending = Ending(traceback.format_exc(limit=-3).strip(), is_full(error))
        if torch.cuda.is_initialized():
            # What torch keeps for later: the next task may be a smaller one, and others need the room.
            gc.collect()
            torch.cuda.empty_cache()
    except torch.AcceleratorError as error:  # outside of training, which says it by itself
        raise DeviceLost(str(error).splitlines()[0]) from error
    return ending


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
