"""The same tasks as in workers.py, carried out by the workers of a Ray cluster.

What is promised is the same: a task that raises has failed and the others go on; a worker or a node that is lost
costs what it did since its last checkpoint, and its task is tried again; asked to stop, all save. Workers write into
the study's directory, so several nodes need a file system that all of them see under the same path.
"""

import contextlib
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

from headstart.errors import DeviceLost, HeadstartError, UserError
from headstart.study.agenda import Agenda, Ending, Outcome, Task
from headstart.study.workers import SHARE_SECONDS, STOP_SECONDS, Interrupted, Work, ending_of, seldom
from headstart.training.signals import Stopped, StopRequests

OBJECT_STORE_BYTES = 80 * 2**20  # nothing large is sent: workers read their data from files
CONNECT_SECONDS = 5.0
# A Ray of our own listens on the network: only who knows the token may talk to it. Whether there is one is settled
# when Ray is imported; where it was before we could say so, it stays as it was.
_GUARD = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
_ADDRESS = "give HOST:PORT as `ray start --head` prints it, or auto on one of its nodes"
_VERSIONED = ("headstart", "torch", "numpy")
_guarded = False


def import_ray(address: str | None) -> Any:
    """Ray, told to report to nobody; or what to install, or why there is none at the address."""
    global _guarded
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if "ray" not in sys.modules and not address and "RAY_AUTH_MODE" not in os.environ:
        _guarded = True
    try:
        with _variables(_GUARD if _guarded else {}):
            import ray
    except ImportError as error:
        raise UserError(
            "--engine ray needs the package ray, which is not installed", fix="pip install 'headstart[ray]'"
        ) from error
    if address:
        _look_for_cluster(address)
    return ray


class Need(NamedTuple):
    """What a task takes of a node."""

    cores: int
    gpus: float = 0.0


class Report(NamedTuple):
    """What a worker says at the end: what came of the task, if it was brought to one, and how long it took."""

    ending: Ending | None
    seconds: float


# ---- the cluster --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster(address: str | None, need: Need, jobs: int) -> Iterator[Any]:
    """The cluster that this process uses already, the one at `address`, or one of its own on this machine.

    One of its own has room for `jobs` tasks, and ends with the block.
    """
    ray = import_ray(address)
    if ray.is_initialized():
        yield ray
        return
    temporary = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
    with temporary as place, _own_handlers(), contextlib.redirect_stdout(sys.stderr):
        try:
            if address:
                _connect(ray, address)
            else:
                _start(ray, jobs * need.cores, place)
            yield ray
        finally:
            ray.shutdown()


def _start(ray: Any, cores: int, place: str) -> None:
    with _variables(_GUARD if _guarded else {}):
        ray.init(
            address="local", num_cpus=cores, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False, logging_level="CRITICAL", _temp_dir=place,
        )  # fmt: skip


def _connect(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="CRITICAL")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(f"the Ray cluster at {address} cannot be used: {error}", fix=_ADDRESS) from error


def _look_for_cluster(address: str) -> None:
    """Ray itself would try for a minute and a half."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise UserError(f"--ray-address {address} is not HOST:PORT", fix=_ADDRESS)
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address} ({error})", fix=_ADDRESS) from error


@contextlib.contextmanager
def _variables(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for a while."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
    """Ray takes SIGTERM for itself and does not give it back."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


# ---- carrying out -------------------------------------------------------------------------------------------


def carry_out_on_ray(
    tasks: Iterable[Task],
    work: Work,
    jobs: int | None,
    *,
    need: Need,
    address: str | None = None,
    **hear: Callable[..., None],
) -> dict[str, Outcome]:
    """Every task, at most `jobs` at once (None: as many as there is room for); `hear` as Agenda has it."""
    waiting = list(tasks)
    if not waiting:
        return {}
    with cluster(address, need, jobs or 1) as ray:
        room = _room(ray, need)  # refused where there is none
        agenda = Agenda(waiting, jobs or room, **hear)
        with StopRequests() as requests:
            _Errand(ray, need, work, agenda).carry_out(requests)
    return agenda.outcomes


def _room(ray: Any, need: Need) -> int:
    """How many tasks fit on the nodes that are there now."""
    cores, gpus = need
    count = 0
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        fits = int(has.get("CPU", 0) // cores)
        count += min(fits, int(has.get("GPU", 0) / gpus)) if gpus else fits
    if not count:
        raise UserError(
            f"no node of the Ray cluster has room for a trial: {cores} cores{', a GPU' if gpus else ''}",
            fix="start a node that has, or give a smaller --threads" + (", or --device cpu" if gpus else ""),
        )
    return count


class _Errand:
    """One list of tasks on a cluster."""

    def __init__(self, ray: Any, need: Need, work: Work, agenda: Agenda) -> None:
        self.ray, self.work, self.agenda = ray, work, agenda
        # Ray would try again by itself, but neither count nor tell.
        self.do = ray.remote(_do).options(num_cpus=need.cores, num_gpus=need.gpus, max_retries=0)
        self.here = (os.getcwd(), _versions())
        self.running: dict[Any, Task] = {}

    def carry_out(self, requests: StopRequests) -> None:
        shares = _Shares(self.ray)
        try:
            while self.agenda:
                for task in self.agenda.next():
                    ref = self.do.remote(self.work, task.name, task.argument, shares.board, *self.here)
                    self.running[ref] = task
                if self.running:
                    for ref in self.ray.wait(list(self.running), timeout=SHARE_SECONDS)[0]:
                        self._settle(self.running.pop(ref), ref)
                shares.tell({task.name for task in self.running.values()}, self.agenda.heard)
                if requests.number:
                    self._stop()
                    raise Interrupted(requests.number, len(self.agenda.outcomes))
        finally:
            for ref in self.running:
                self.ray.cancel(ref, force=True)
            shares.close()

    def _settle(self, task: Task, ref: Any) -> None:
        """Hear how a task ended, or that its worker was lost."""
        try:
            report, loss = self.ray.get(ref), "it was stopped"
        except self.ray.exceptions.RayError as error:
            report, loss = Report(None, 0.0), _first_line(error)
        if report.ending is None:
            self.agenda.lost(task, loss, report.seconds)
        else:
            self.agenda.ended(task, report.ending, report.seconds)

    def _stop(self) -> None:
        """Ask for an end, which comes as an interrupt in the worker: each finishes its step and saves."""
        refs = list(self.running)
        for ref in refs:
            self.ray.cancel(ref)
        if refs:
            self.ray.wait(refs, num_returns=len(refs), timeout=STOP_SECONDS)


class _Shares:
    """How far each task is, by way of an actor; nothing is lost with it but the progress that is shown."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self.board = ray.remote(_Board).options(num_cpus=0, max_restarts=-1).remote()
        self._asked = self.board.take.remote()

    def tell(self, names: set[str], on_share: Callable[[str, float], None]) -> None:
        if not self._ray.wait([self._asked], timeout=0)[0]:
            return
        with contextlib.suppress(self._ray.exceptions.RayError):
            for name, share in self._ray.get(self._asked).items():
                if name in names:
                    on_share(name, share)
        self._asked = self.board.take.remote()

    def close(self) -> None:
        self._ray.kill(self.board)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in _VERSIONED}


# ---- in other processes -------------------------------------------------------------------------------------


class _Board:
    """Where workers write how far they are."""

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}

    def say(self, name: str, share: float) -> None:
        self._shares[name] = share

    def take(self) -> dict[str, float]:
        shares, self._shares = self._shares, {}
        return shares


def _do(work: Work, name: str, argument: Any, board: Any, place: str, versions: dict[str, str]) -> Report:
    """A worker's part: the task, in the directory and with the versions of whoever started the study."""
    began = time.monotonic()
    ending = None
    try:
        _check_node(place, versions)
        ending = ending_of(work, argument, seldom(lambda share: board.say.remote(name, share)))
    except Stopped:
        pass
    except DeviceLost as lost:
        print(lost, file=sys.stderr, flush=True)
        os._exit(1)  # Ray would give the next task to this process, which is of no more use
    except HeadstartError as known:
        ending = Ending(str(known))
    return Report(ending, time.monotonic() - began)


def _check_node(place: str, versions: dict[str, str]) -> None:
    node = socket.gethostname()
    for name, version in _versions().items():
        if version != versions[name]:
            raise UserError(
                f"{node} has {name} {version}, and the study was started with {versions[name]}",
                fix="install the same versions on all nodes",
            )
    try:
        os.chdir(place)
    except OSError as error:
        raise UserError(
            f"{node} does not see the directory of the study ({error.strerror})", where=place,
            fix="start it in a directory that all nodes share",
        ) from error  # fmt: skip
