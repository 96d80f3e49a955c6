"""One process a run: a lock that dies with its holder."""

import contextlib
import datetime
import fcntl
import json
import os
from pathlib import Path
from types import TracebackType

from headstart.errors import UserError


class RunLock:
    """Holds `directory/lock` from `with` to its end; the system lets go of it if the process is killed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "lock"

    def __enter__(self) -> "RunLock":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+")
        except OSError as error:
            raise UserError(
                f"cannot be written ({error.strerror})", where=str(self.path.parent), fix="give another --out"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with self._file:
                what = f"locked by {self._holder()}" if isinstance(error, BlockingIOError) else _NO_LOCKS
            raise UserError(what, where=str(self.path.parent), fix=_FIX) from error
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        with contextlib.suppress(OSError):  # a disk too full for this line is refused with numbers later
            os.ftruncate(self._file.fileno(), 0)
            os.write(self._file.fileno(), json.dumps({"pid": os.getpid(), "since": now}).encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _holder(self) -> str:
        self._file.seek(0)
        try:
            holder = json.load(self._file)
            return f"pid {int(holder['pid'])} since {holder['since']}"
        except (ValueError, KeyError, TypeError):
            return "another process"


_NO_LOCKS = "the file system has no locks"
_FIX = "wait for it, stop it, or give another --out"
