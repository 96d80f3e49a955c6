"""Runs the same tasks as workers.py, with the same guarantees, on the workers of a Ray cluster.

A task that raises has failed, and the others continue. A worker or a node that is lost costs the steps since the last
checkpoint. A stop request lets all workers save. Workers write into the study's directory, so all nodes need a file
system that shows it under the same path.
"""

import contextlib
import dataclasses
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

from headstart.errors import DeviceLost, HeadstartError, UserError
from headstart.study.execution import workers
from headstart.study.execution.scheduler import ScheduledTask, Scheduler, TaskEnd, TaskResult
from headstart.study.execution.workers import Interrupted, Work, run_task, throttled
from headstart.training.signals import Stopped, StopRequests

OBJECT_STORE_BYTES = 80 * 2**20  # workers read their data from files
CONNECT_SECONDS = 5.0

# A Ray that we start listens on the network: only who knows the token may talk to it. Ray reads this when it is
# imported; where the caller has imported it before, it stays as it is.
_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
_ADDRESS_FIX = "give HOST:PORT as `ray start --head` prints it, or auto on one of its nodes"
_has_token = False


class TaskResources(NamedTuple):
    """What a task needs of a node."""

    cores: int
    gpus: float = 0.0


class _Report(NamedTuple):
    end: TaskEnd | None  # None where the task was stopped
    seconds: float


def import_ray(address: str | None) -> Any:
    """Ray, with its usage statistics off; refused where it is not installed or no cluster is at the address."""
    global _has_token
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if "ray" not in sys.modules and not address and "RAY_AUTH_MODE" not in os.environ:
        _has_token = True
    try:
        with _variables(_TOKEN if _has_token else {}):
            import ray
    except ImportError as error:
        what = "--engine=ray needs the package ray, which is not installed"
        raise UserError(what, fix="pip install 'headstart[ray]'") from error
    if address and address != "auto":
        _check_address(address)
    return ray


def _check_address(address: str) -> None:
    """Ray itself would try for a minute and a half."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise UserError(f"--ray-address={address} is not HOST:PORT", fix=_ADDRESS_FIX)
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address} ({error})", fix=_ADDRESS_FIX) from error


@contextlib.contextmanager
def cluster(address: str | None, resources: TaskResources, jobs: int) -> Iterator[Any]:
    """The cluster that this process already uses, the one at `address`, or a new one on this machine.

    A new one has room for `jobs` tasks, and ends with the block.
    """
    ray = import_ray(address)
    if ray.is_initialized():
        yield ray
        return
    temporary = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
    with temporary as folder, _restored_sigterm(), contextlib.redirect_stdout(sys.stderr):
        try:
            if address:
                _connect(ray, address)
            else:
                _start(ray, jobs * resources.cores, folder)
            yield ray
        finally:
            ray.shutdown()


def _start(ray: Any, cores: int, folder: str) -> None:
    with _variables(_TOKEN if _has_token else {}):
        ray.init(
            address="local", num_cpus=cores, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False, logging_level="CRITICAL", _temp_dir=folder,
        )  # fmt: skip


def _connect(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="CRITICAL")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(f"the Ray cluster at {address} cannot be used: {error}", fix=_ADDRESS_FIX) from error


@contextlib.contextmanager
def _variables(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _restored_sigterm() -> Iterator[None]:
    """Ray takes SIGTERM over and does not give it back."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def run_on_ray(
    tasks: Iterable[ScheduledTask], work: Work, jobs: int | None, *, resources: TaskResources,
    address: str | None = None, **callbacks: Any,
) -> dict[str, TaskResult]:  # fmt: skip
    """Run every task, at most `jobs` at once (None: as many as the cluster has room for)."""
    # Ray gives out the cores and the GPUs of all nodes.
    waiting = [dataclasses.replace(task, device="cpu", threads=1) for task in tasks]
    if not waiting:
        return {}
    with cluster(address, resources, jobs or 1) as ray:
        room = _room(ray, resources)  # refused where there is none
        scheduler = Scheduler(waiting, jobs or room, **callbacks)
        with StopRequests() as requests:
            _RayPool(ray, resources, work, scheduler).run(requests)
    return scheduler.results


def _room(ray: Any, resources: TaskResources) -> int:
    """How many tasks fit on the nodes that are up."""
    cores, gpus = resources
    count = 0
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        fits = int(has.get("CPU", 0) // cores)
        count += min(fits, int(has.get("GPU", 0) / gpus)) if gpus else fits
    if not count:
        what, or_cpu = (", a GPU", ", or --device=cpu") if gpus else ("", "")
        what = f"no node of the Ray cluster has room for a trial: {cores} cores{what}"
        raise UserError(what, fix=f"start a larger node, or give a smaller --threads{or_cpu}")
    return count


class _RayPool:
    def __init__(self, ray: Any, resources: TaskResources, work: Work, scheduler: Scheduler) -> None:
        self._ray, self._work, self._scheduler = ray, work, scheduler
        # The scheduler counts and logs retries, which Ray would not.
        needs = {"num_cpus": resources.cores, "num_gpus": resources.gpus}
        self._remote = ray.remote(_run_here).options(**needs, max_retries=0)
        self._running: dict[Any, ScheduledTask] = {}
        self._board = ray.remote(_ProgressBoard).options(num_cpus=0, max_restarts=-1).remote()
        self._shares = self._board.take.remote()

    def run(self, requests: StopRequests) -> None:
        here = (os.getcwd(), _versions())
        try:
            while self._scheduler:
                for task in self._scheduler.next():
                    ref = self._remote.remote(self._work, task.name, task.argument, self._board, *here)
                    self._running[ref] = task
                if self._running:
                    for ref in self._ray.wait(list(self._running), timeout=workers.SHARE_SECONDS)[0]:
                        self._finish(self._running.pop(ref), ref)
                self._read_progress()
                if requests.number:
                    self._stop()
                    raise Interrupted(requests.number)
        finally:
            for ref in self._running:
                self._ray.cancel(ref, force=True)
            self._ray.kill(self._board)

    def _finish(self, task: ScheduledTask, ref: Any) -> None:
        try:
            report, reason = self._ray.get(ref), "it was stopped"
        except self._ray.exceptions.RayError as error:
            report = _Report(None, 0.0)
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if report.end is None:
            self._scheduler.lose(task, reason, report.seconds)
        else:
            self._scheduler.finish(task, report.end, report.seconds)

    def _read_progress(self) -> None:
        """Without waiting; if the board is lost, only the display of progress suffers."""
        if not self._ray.wait([self._shares], timeout=0)[0]:
            return
        names = {task.name for task in self._running.values()}
        with contextlib.suppress(self._ray.exceptions.RayError):
            for name, share in self._ray.get(self._shares).items():
                if name in names:
                    self._scheduler.progress(name, share)
        self._shares = self._board.take.remote()

    def _stop(self) -> None:
        """Interrupt every worker: each finishes its step and saves.

        Only those that are late remain to be killed: Ray aborts if a task is cancelled again while its result comes in.
        """
        refs = list(self._running)
        for ref in refs:
            self._ray.cancel(ref)
        if refs:
            late = self._ray.wait(refs, num_returns=len(refs), timeout=workers.STOP_SECONDS)[1]
            self._running = {ref: self._running[ref] for ref in late}


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("headstart", "torch", "numpy")}


# ---- in other processes -------------------------------------------------------------------------------------


class _ProgressBoard:
    """An actor to which workers write how far they are."""

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}

    def write(self, name: str, share: float) -> None:
        self._shares[name] = share

    def take(self) -> dict[str, float]:
        shares, self._shares = self._shares, {}
        return shares


def _run_here(work: Work, name: str, argument: Any, board: Any, folder: str, versions: dict[str, str]) -> _Report:
    """Run a task in the directory and with the versions of the process that started the study."""
    started, end = time.monotonic(), None
    try:
        _check_node(folder, versions)
        end = run_task(work, argument, throttled(lambda share: board.write.remote(name, share)))
    except Stopped:
        pass
    except DeviceLost as lost:
        print(lost.text, file=sys.stderr, flush=True)
        os._exit(1)  # Ray would give this process, which can do no more, the next task
    except HeadstartError as known:
        end = TaskEnd(known.text)
    return _Report(end, time.monotonic() - started)


def _check_node(folder: str, versions: dict[str, str]) -> None:
    node = socket.gethostname()
    for name, version in _versions().items():
        if version != versions[name]:
            what = f"{node} has {name} {version}, and the study was started with {versions[name]}"
            raise UserError(what, fix="install the same versions on all nodes")
    try:
        os.chdir(folder)
    except OSError as error:
        what = f"{node} does not see the directory of the study ({error.strerror})"
        raise UserError(what, where=folder, fix="start it in a directory that all nodes share") from error
