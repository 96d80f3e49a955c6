"""The ranks that train one run together, as torchrun starts them; with `ALONE`, all of this does nothing."""

import contextlib
import datetime
import itertools
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from headstart.errors import HeadstartError, TryAgain
from headstart.storage.processes import stopped_with_parent

T = TypeVar("T")

# The first rank may train a tokenizer or write a large checkpoint while the others wait; if one dies, torchrun
# ends the others.
TIMEOUT = datetime.timedelta(hours=12)
JOIN_TIMEOUT = datetime.timedelta(minutes=30)
REPORT_SECONDS = 5.0
SIGNS_OF_LOSS = ("gloo", "NCCL", "Connection", "Broken pipe")  # in an error that says that another process is gone
GPU_STEPS_BETWEEN = 8  # ranks agree on the host, which waits for the slowest


class Ranks:
    """One of `world` processes: what it does with the others, and what only the first one does."""

    def __init__(self, rank: int = 0, world: int = 1, local_rank: int = 0, local_world: int = 1) -> None:
        """`local_rank` is the number among the `local_world` processes of this machine."""
        self.rank, self.world, self.local_rank, self.local_world = rank, world, local_rank, local_world
        self._store: Any = None
        self._steps_between = 1

    @classmethod
    def of_environment(cls) -> "Ranks":
        """By the variables that torchrun sets; ALONE without them."""
        wanted = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if "MASTER_ADDR" not in os.environ or not all(name in os.environ for name in wanted):
            return ALONE
        numbers = [int(os.environ[name]) for name in wanted]
        return cls(*numbers) if numbers[1] > 1 else ALONE

    @property
    def is_joined(self) -> bool:
        """Whether there are other ranks, and they are connected."""
        return self._store is not None

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes files and messages."""
        return self.rank == 0

    @property
    def key(self) -> tuple[int, ...]:
        """What this rank adds to random keys: nothing for the first, as in a single process."""
        return (self.rank,) if self.rank else ()

    # ---- together ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def joined(self, device: torch.device) -> Iterator[None]:
        """Within `with`, the ranks are connected; an error of one of them is reported once."""
        if self.world == 1:
            yield
            return
        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
            self._steps_between = GPU_STEPS_BETWEEN
        try:
            store, _, _ = next(dist.rendezvous("env://"))
            self._store = dist.PrefixStore(self._session(store), store)
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
                store=self._store, rank=self.rank, world_size=self.world, timeout=TIMEOUT,
            )  # fmt: skip
            # torchrun ends its ranks, unless it is killed itself.
            is_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
            with stopped_with_parent() if is_torchrun else contextlib.nullcontext():
                yield
        except HeadstartError as error:
            self._report_once(error)
            raise
        except RuntimeError as error:
            if not isinstance(error, dist.DistError) and not any(sign in str(error) for sign in SIGNS_OF_LOSS):
                raise
            lost = TryAgain(
                "the connection to the other ranks is lost: one of them has ended",
                fix="look for what ended first; with torchrun --max-restarts 3 it resumes by itself",
            )
            self._report_once(lost)
            raise lost from error
        finally:
            self._store = None
            # A GPU may wait for ever for a rank that is gone; the end of the process ends that.
            if dist.is_initialized() and (not on_gpu or sys.exc_info()[0] is None):
                dist.destroy_process_group()

    def _session(self, store: Any) -> str:
        """A name for this session that all ranks know and no earlier session used.

        torchrun keeps its store when it restarts ranks, with all that those before had written. So each of the others
        asks with a random token and accepts only an answer to it; the first one answers until all have confirmed.
        """
        own = secrets.token_hex(8)
        if not self.is_first:
            store.set(f"asks-{self.rank}", own)
            store.wait([f"answer-{own}"], JOIN_TIMEOUT)
            session: str = store.get(f"answer-{own}").decode()
            store.set(f"thanks-{session}-{self.rank}", "")
            return session
        missing, last = list(range(1, self.world)), time.monotonic() + JOIN_TIMEOUT.total_seconds()
        while missing and time.monotonic() < last:
            for rank in missing:
                if store.check([f"asks-{rank}"]):
                    store.set(f"answer-{store.get(f'asks-{rank}').decode()}", own)
            time.sleep(0.01)
            missing = [rank for rank in missing if not store.check([f"thanks-{own}-{rank}"])]
        if missing:
            raise TryAgain(f"{len(missing)} of {self.world} ranks have not come", fix="start all of them again")
        return own

    def _report_once(self, error: HeadstartError) -> None:
        """Where all ranks fail alike the first one reports it; a rank that fails alone reports itself."""
        if self._store is None:
            error.is_of_one_rank = not self.is_first
            return
        try:
            if self.is_first:
                self._store.set("reported", "yes")
            else:
                self._store.wait(["reported"], datetime.timedelta(seconds=REPORT_SECONDS))
        except RuntimeError as failed:
            # A store that is gone has gone with the first rank, which has reported.
            error.is_of_one_rank = "timeout" in str(failed).lower()

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.is_joined:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, *numbers: int) -> tuple[int, ...]:
        """The maximum of each number over all ranks."""
        if not self.is_joined:
            return numbers
        both = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(both, dist.ReduceOp.MAX)
        return tuple(both.tolist())

    def agree_at(self, step: int, *numbers: int) -> tuple[int, ...]:
        """The same at some of the steps; zeros at the others."""
        return (0,) * len(numbers) if step % self._steps_between else self.agree(*numbers)

    def shared(self, items: Iterable[T]) -> Iterator[tuple[T, bool]]:
        """This rank's items, as many on all ranks; False marks one that only fills up and must not count."""
        remaining = iter(items)
        rank, world = (self.rank, self.world) if self.is_joined else (0, 1)
        while group := list(itertools.islice(remaining, world)):
            yield (group[rank], True) if rank < len(group) else (group[0], False)

    # ---- the first rank, and then the others -----------------------------------------------------------------------

    def first(self, work: Callable[[], T]) -> T:
        """The first rank's result, as JSON data, on all ranks. Its error ends all of them."""
        if not self.is_joined:
            return work()
        failed, text = None, ""
        if self.is_first:
            try:
                text = json.dumps({"result": work()})
            except BaseException as error:
                failed = error
                own = error if isinstance(error, HeadstartError) else HeadstartError(str(error))
                text = json.dumps({"error": own.text, "code": own.code, "exit_code": own.exit_code})
        with contextlib.suppress(RuntimeError) if failed else contextlib.nullcontext():
            received = [text]
            dist.broadcast_object_list(received, 0, device=torch.device("cpu"))
            self.agree(0)  # a barrier: all have received it before the first one continues
        if failed is not None:
            raise failed
        known = json.loads(received[0])
        if "error" in known:
            same = HeadstartError(known["error"], code=known["code"])
            same.exit_code = known["exit_code"]
            raise same
        return known["result"]

    def first_then_others(self, work: Callable[[], T]) -> T:
        """The first rank does the work, then the others, who find what it made."""
        made: list[T] = []
        self.first(lambda: made.append(work()))
        return made[0] if made else work()


ALONE = Ranks()
