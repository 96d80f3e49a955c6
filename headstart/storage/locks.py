"""One writer for each run: a lock file in its directory."""

import contextlib
import datetime
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from headstart.errors import UserError
from headstart.storage.exhaustion import try_again


@contextlib.contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Within `with`, hold `directory/lock`; the system lets go of it if the process is killed.

    A directory that was made for it, and has nothing else in it when an error comes, goes again.
    """
    is_new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A link is refused: what it points to would be emptied.
        file = os.fdopen(os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+")
    except OSError as error:
        if error.errno == errno.ELOOP:
            what, fix = "is a link, and not a lock of this run", "delete the link"
            raise UserError(what, where=directory / "lock", fix=fix, code="no-file") from error
        if (lacking := try_again(error, str(directory))) is not None:
            raise lacking from error
        what = f"cannot be written ({error.strerror})"
        raise UserError(what, where=directory, fix="give another --out", code="no-file") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            fix = "wait for it, stop it, or give another --out"
            if isinstance(error, BlockingIOError):
                raise UserError(f"locked by {_holder(file)}", where=directory, fix=fix, code="in-use") from error
            raise UserError("the file system has no locks", where=directory, fix=fix, code="unsupported") from error
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        with contextlib.suppress(OSError):  # a disk too full for this line is refused with numbers later
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), json.dumps({"pid": os.getpid(), "since": now}).encode())
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                if is_new and os.listdir(directory) == ["lock"]:
                    (directory / "lock").unlink()
                    directory.rmdir()
            raise


def _holder(file: TextIO) -> str:
    file.seek(0)
    try:
        holder = json.load(file)
        return f"pid {int(holder['pid'])} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
