"""Runs tasks side by side in processes of this machine.

A process that dies (killed, out of memory) or whose GPU fails is replaced; scheduler.py decides which tasks are
retried. When this process dies, its workers die with it.
"""

import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from headstart.errors import Code, DeviceLost, HeadstartError, IntegrityError, MemoryFull
from headstart.storage.processes import die_with_parent, without_current_directory
from headstart.study.execution.scheduler import ScheduledTask, Scheduler, TaskEnd, TaskResult
from headstart.training.signals import Stopped, StopRequests

SHARE_SECONDS = 0.2  # between two reports of a task's progress
STOP_SECONDS, END_SECONDS = 60.0, 5.0  # of busy workers that save, of idle ones
Work = Callable[[Any, Callable[[float], None]], None]


class Interrupted(HeadstartError):
    """All workers were asked to stop, and have saved their state."""

    code: Code = "stopped"

    def __init__(self, number: int, how_far: str = "") -> None:
        self.number, self.exit_code = number, 128 + number
        what = f"stopped by {signal.Signals(number).name}{how_far}; what is done is saved"
        super().__init__(what, fix="run the same command again to resume")

    def counted(self, finished: int, tasks: int) -> "Interrupted":
        """With how far the whole is, earlier calls included."""
        return Interrupted(self.number, f" with {finished:,} of {tasks:,} tasks finished")


class Warned(NamedTuple):
    """A library's warning in a worker's process."""

    text: str


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: ScheduledTask
    started: float = field(default_factory=time.monotonic)
    gpu_error: str | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


def run_in_processes(
    tasks: Iterable[ScheduledTask], work: Work, jobs: int, *, threads: int = 1, **callbacks: Any
) -> dict[str, TaskResult]:
    """Run every task, at most `jobs` of so many threads at once; `callbacks` as Scheduler takes them."""
    pool = ProcessPool(Scheduler(tasks, jobs, threads=threads, **callbacks), work)
    with StopRequests() as requests:
        try:
            pool.run(requests)
        finally:
            pool.close()
    return pool.scheduler.results


class ProcessPool:
    """Processes that take tasks from a scheduler."""

    def __init__(self, scheduler: Scheduler, work: Work) -> None:
        self.scheduler, self._work = scheduler, work
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([work.__module__])  # slow imports happen once
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        # The system closes our end when this process ends, however it ends.
        self._lifeline, self._our_end = self._context.Pipe(duplex=False)

    def run(self, requests: StopRequests) -> None:
        while self.scheduler:
            for task in self.scheduler.next():
                self._start(task)
            multiprocessing.connection.wait([worker.pipe for worker in self._busy], timeout=SHARE_SECONDS)
            for worker in list(self._busy):
                self._receive(worker)
            if requests.number:
                self._stop()
                raise Interrupted(requests.number)

    def close(self) -> None:
        """End the workers: idle ones by themselves, so that they give back what they share; busy ones are killed."""
        for worker in self._idle:
            worker.pipe.close()
        deadline = time.monotonic() + END_SECONDS
        for worker in self._idle:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        self._our_end.close()
        self._lifeline.close()
        for worker in (*self._busy, *self._idle):
            worker.process.kill()
            worker.process.join()

    def _start(self, task: ScheduledTask) -> None:
        while self._idle:
            worker = self._idle.pop()
            worker.task, worker.started = task, time.monotonic()
            try:
                worker.pipe.send(task.argument)
            except OSError:  # it died while it was idle
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

    def _receive(self, worker: _Worker) -> None:
        """Handle all messages of a worker: a share, the error of its GPU, or the end of its task."""
        while True:
            try:
                if not worker.pipe.poll():
                    return
                message = worker.pipe.recv()
            except (EOFError, OSError):
                break
            if isinstance(message, float):
                self.scheduler.progress(worker.task.name, message)
            elif isinstance(message, Warned):
                self.scheduler.warn(message.text)
            elif isinstance(message, str):
                worker.gpu_error = message
            else:
                self._busy.remove(worker)
                self._idle.append(worker)
                self.scheduler.finish(worker.task, message, worker.seconds)
                return
        self._busy.remove(worker)
        worker.process.join()
        self.scheduler.lose(worker.task, worker.gpu_error or _reason(worker.process.exitcode), worker.seconds)

    def _stop(self) -> None:
        """Ask every worker to finish its step and save."""
        for worker in self._busy:
            worker.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._busy:
            worker.process.join(max(0.0, deadline - time.monotonic()))


def _reason(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep multiprocessing from running the caller's script again in each child."""
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
    """Run one task after the other, until the pipe is closed."""
    _leave_forkserver()
    die_with_parent()  # which the thread below cannot do while this process is stopped
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everyone: the parent decides
    threading.Thread(target=_exit_with_parent, args=(lifeline,), daemon=True).start()

    def send_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        pipe.send(Warned(f"{category.__name__}: {message}"))

    warnings.showwarning = send_warning  # beside the parent's progress bar, and not through it
    while True:
        try:
            argument = pipe.recv()
        except EOFError:
            return
        try:
            end = run_task(work, argument, throttled(lambda share: pipe.send(float(share))))
        except Stopped:
            raise SystemExit(0) from None
        except DeviceLost as lost:
            pipe.send(lost.text)
            os._exit(1)
        pipe.send(end)


def run_task(work: Work, argument: Any, on_share: Callable[[float], None]) -> TaskEnd:
    """Run a task and report its error, if any; raises DeviceLost where this process can do no more tasks."""
    import torch  # the work imports it anyway, and the parent need not

    from headstart.training.memory import is_full

    end = TaskEnd()
    try:
        try:
            work(argument, on_share)
        except (Stopped, DeviceLost):
            raise
        except HeadstartError as known:
            end = TaskEnd(known.text, isinstance(known, MemoryFull), isinstance(known, IntegrityError))
        except Exception as error:
            if isinstance(error, torch.AcceleratorError) and not is_full(error):
                raise
            end = TaskEnd(traceback.format_exc(limit=-3).strip(), is_full(error))
        if torch.cuda.is_initialized():  # the next task may be smaller, and others need the memory
            gc.collect()
            torch.cuda.empty_cache()
    except torch.AcceleratorError as error:
        raise DeviceLost(str(error).splitlines()[0]) from error
    return end


def throttled(send: Callable[[float], object]) -> Callable[[float], None]:
    """Send a task's progress, but not at every step."""
    last = 0.0

    def on_share(share: float) -> None:
        nonlocal last
        if time.monotonic() - last > SHARE_SECONDS:
            last = time.monotonic()
            send(share)

    return on_share


def _leave_forkserver() -> None:
    """Let the fork server, whose child this is, end with the study: it ends when nobody could ask it for a process."""
    server: Any = multiprocessing.forkserver._forkserver
    if getattr(server, "_forkserver_alive_fd", None) is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


def _exit_with_parent(lifeline: Connection) -> None:
    """Nothing is ever sent: the read ends when the parent is gone."""
    try:
        lifeline.recv()
    except EOFError:
        os._exit(1)
