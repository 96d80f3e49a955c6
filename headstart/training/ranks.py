"""The processes that train one run together: torchrun starts them, and says to each which one it is.

Whoever trains in one process has `ALONE`, with which nothing here does anything.
"""

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

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from headstart.errors import HeadstartError, TryAgain

T = TypeVar("T")
# The first rank may train a tokenizer or write a large checkpoint while the others wait; if one dies, torchrun
# ends the others, so that nobody waits for the dead.
PATIENCE = datetime.timedelta(hours=12)
JOINING = datetime.timedelta(minutes=30)
TOLD_SECONDS = 5.0
GPU_STEPS_BETWEEN = 8  # to agree on the host is to wait for the slowest one


class Ranks:
    """One of `world` processes: what it shares with the others, and what only the first one does."""

    def __init__(self, rank: int = 0, world: int = 1, local_rank: int = 0, local_world: int = 1) -> None:
        """`local_rank` is the number among the `local_world` processes of this machine."""
        self.rank, self.world, self.local_rank, self.local_world = rank, world, local_rank, local_world
        self._store: Any = None
        self._steps_between = 1

    @classmethod
    def of_environment(cls) -> "Ranks":
        """As torchrun has started this process; alone, if it has not."""
        wanted = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if "MASTER_ADDR" not in os.environ or not all(name in os.environ for name in wanted):
            return ALONE
        numbers = [int(os.environ[name]) for name in wanted]
        return cls(*numbers) if numbers[1] > 1 else ALONE

    @property
    def is_joined(self) -> bool:
        """Whether there are others, and they are connected."""
        return self._store is not None

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    @property
    def key(self) -> tuple[int, ...]:
        """What makes this rank's randomness its own: nothing for the first, so that alone it is as ever."""
        return (self.rank,) if self.rank else ()

    # ---- together ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def joined(self, device: torch.device) -> Iterator[None]:
        """Within `with`, the ranks are connected; what ends one of them is told once."""
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
                store=self._store, rank=self.rank, world_size=self.world, timeout=PATIENCE,
            )  # fmt: skip
            yield
        except HeadstartError as error:
            self._tell_once(error)
            raise
        except RuntimeError as error:
            if not _is_lost(error):
                raise
            lost = TryAgain(
                "the connection to the other ranks is lost: one of them has ended",
                fix="look for what ended first; with torchrun --max-restarts 3 it goes on by itself",
            )
            self._tell_once(lost)
            raise lost from error
        finally:
            self._store = None
            # A GPU may wait for ever for one that has gone; the end of the process ends that too.
            if dist.is_initialized() and (not on_gpu or sys.exc_info()[0] is None):
                dist.destroy_process_group()

    def _session(self, store: Any) -> str:
        """A name for this meeting that all ranks know and none before them used.

        torchrun keeps its store when it starts ranks again, with all that those before had written. So each of the
        others says a word of its own, and believes only an answer to it; the first one answers until all have thanked
        it by the name that it gave.
        """
        own = secrets.token_hex(8)
        if not self.is_first:
            store.set(f"asks-{self.rank}", own)
            store.wait([f"answer-{own}"], JOINING)
            session: str = store.get(f"answer-{own}").decode()
            store.set(f"thanks-{session}-{self.rank}", "")
            return session
        missing, last = list(range(1, self.world)), time.monotonic() + JOINING.total_seconds()
        while missing and time.monotonic() < last:
            for rank in missing:
                if store.check([f"asks-{rank}"]):
                    store.set(f"answer-{store.get(f'asks-{rank}').decode()}", own)
            time.sleep(0.01)
            missing = [rank for rank in missing if not store.check([f"thanks-{own}-{rank}"])]
        if missing:
            raise TryAgain(
                f"{len(missing)} of {self.world} ranks have not come", fix="start all of them again"
            )
        return own

    def _tell_once(self, error: HeadstartError) -> None:
        """Where all fail alike the first one speaks for all; another that fails alone speaks for itself."""
        if self._store is None:
            error.is_of_one_rank = not self.is_first
            return
        try:
            if self.is_first:
                self._store.set("told", "yes")
            else:
                self._store.wait(["told"], datetime.timedelta(seconds=TOLD_SECONDS))
        except RuntimeError as failed:
            # A store that is gone has gone with the first rank, which had its say.
            error.is_of_one_rank = "timeout" in str(failed).lower()

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.is_joined:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, *numbers: int) -> tuple[int, ...]:
        """Of each number the largest that a rank has."""
        if not self.is_joined:
            return numbers
        both = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(both, dist.ReduceOp.MAX)
        return tuple(both.tolist())

    def agree_at(self, step: int, *numbers: int) -> tuple[int, ...]:
        """The same at some of the steps, and zeros at the others."""
        return (0,) * len(numbers) if step % self._steps_between else self.agree(*numbers)

    def shared(self, items: Iterable[T]) -> Iterator[tuple[T, bool]]:
        """Each rank gets every so-manyth, all as many; where items run out, one again that does not count (False)."""
        remaining = iter(items)
        rank, world = (self.rank, self.world) if self.is_joined else (0, 1)
        while group := list(itertools.islice(remaining, world)):
            yield (group[rank], True) if rank < len(group) else (group[0], False)

    # ---- the first, and then the others -----------------------------------------------------------------------

    def first(self, work: Callable[[], T]) -> T:
        """What the first rank finds, on all of them: plain data, or nothing. Its error ends all of them."""
        if not self.is_joined:
            return work()
        failed, text = None, b""
        if self.is_first:
            try:
                text = json.dumps({"found": work()}).encode()
            except BaseException as error:
                failed, code = error, getattr(error, "exit_code", 1)
                text = json.dumps({"error": str(error), "code": code}).encode()
        with contextlib.suppress(RuntimeError) if failed else contextlib.nullcontext():
            text = _sent(text)
            self.agree(0)  # all have come so far: what the first one does next, none has missed
        if failed is not None:
            raise failed
        known = json.loads(text)
        if "error" in known:
            raise ended_elsewhere(known["error"], known["code"])
        found: T = known["found"]
        return found

    def first_then_others(self, work: Callable[[], T]) -> T:
        """The first rank does it, and then the others, who find what it has made."""
        made: list[T] = []
        self.first(lambda: made.append(work()))
        return made[0] if made else work()


ALONE = Ranks()


def _sent(text: bytes) -> bytes:
    """What the first rank has to say, on all of them."""
    size = torch.tensor(len(text))
    dist.broadcast(size, 0)
    data = torch.from_numpy(np.frombuffer(text.ljust(int(size)), np.uint8).copy())
    dist.broadcast(data, 0)
    return data.numpy().tobytes()


def ended_elsewhere(what: str, exit_code: int) -> HeadstartError:
    """The first rank's error, for another one to end with."""
    error = HeadstartError(what)
    error.exit_code = exit_code
    return error


def _is_lost(error: Exception) -> bool:
    """Whether an error says that another process is not there any more."""
    signs = ("gloo", "NCCL", "Connection", "Broken pipe")
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in signs)
