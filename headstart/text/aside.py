"""Files written whole or not at all: aside first, synced, then renamed."""

import contextlib
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headstart.errors import TryAgain, UserError
from headstart.text.durable import flush, flush_directory, rename

_ASIDE = ".tmp-"


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is complete and on disk; interrupted, it leaves nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file, aside = _locked_aside(path)
    except OSError as error:
        raise UserError(
            f"cannot be written to ({error.strerror})", where=str(path.parent), fix="choose another directory"
        ) from error
    try:
        with file:
            yield file
            file.flush()
            flush(path, file.fileno())
            rename(aside, path)
        flush_directory(path.parent)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        free = shutil.disk_usage(path.parent).free
        raise TryAgain(
            f"the disk is full: {free / 1e6:,.0f} MB are free",
            where=str(path.parent),
            fix="free some space, or choose a directory on a larger disk",
        ) from error
    finally:
        aside.unlink(missing_ok=True)


def _locked_aside(path: Path) -> tuple[BinaryIO, Path]:
    """A new file beside the path, locked as long as it is open, so that others see that somebody writes it."""
    while True:
        aside = path.with_name(f"{_ASIDE}{path.name}-{os.getpid()}-{time.monotonic_ns()}")
        file = aside.open("x+b")
        fcntl.flock(file, fcntl.LOCK_EX)
        if aside.exists():  # else a cleaner came between the two calls
            return file, aside
        file.close()


def remove_stale(directory: Path, suffix: str) -> None:
    """Delete what writers that were killed left behind: files aside that nobody holds a lock on."""
    for aside in directory.glob(f"{_ASIDE}*{suffix}-*"):
        with contextlib.suppress(OSError), aside.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            aside.unlink()
