"""One process a run: a lock that dies with its holder."""

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
        except BlockingIOError:
            raise UserError(f"locked by {self._holder()}", where=str(self.path.parent), fix=_FIX) from None
        self._file.seek(0)
        self._file.truncate()
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "since": now}, self._file)
        self._file.flush()
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


_FIX = "wait for it, stop it, or give another --out"
