"""Flushing and renaming: what makes a file whole or not there, and what is done where a file system has neither.

Some network and user-space file systems cannot do one of the two. That is refused, unless `unsafe_file_system`
allows to go without: what is killed while it saves may then leave half a file, which its checksum tells.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

from headstart.errors import UserError

_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_tell: ContextVar[Callable[[str], None] | None] = ContextVar("unsafe file system", default=None)


@contextlib.contextmanager
def unsafe_file_system(is_allowed: bool, tell: Callable[[str], None]) -> Iterator[None]:
    """Within `with`, go without what the file system cannot do, where allowed; the first time it is told."""
    told = list[str]()

    def once(line: str) -> None:
        if not told:
            told.append(line)
            tell(line)

    token = _tell.set(once if is_allowed else None)
    try:
        yield
    finally:
        _tell.reset(token)


def flush(path: Path, descriptor: int) -> None:
    """What was written to an open file or directory is on the disk afterwards."""
    with _unsupported("flush", path):
        os.fsync(descriptor)


def flush_directory(path: Path) -> None:
    """The names in a directory are on the disk afterwards."""
    handle = os.open(path, os.O_RDONLY)
    try:
        flush(path, handle)
    finally:
        os.close(handle)


def rename(source: Path, target: Path) -> None:
    """Give a file or a directory its name, in one moment; a file that has the name is replaced."""
    is_done = False
    with _unsupported("rename", target):
        os.replace(source, target)
        is_done = True
    if is_done:
        return
    if source.is_dir():
        shutil.copytree(source, target)
        shutil.rmtree(source)
    else:
        shutil.copyfile(source, target)
        source.unlink()


@contextlib.contextmanager
def _unsupported(verb: str, path: Path) -> Iterator[None]:
    """Refuse, or where that is allowed pass over, what the file system cannot do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        if (tell := _tell.get()) is None:
            raise UserError(
                f"the file system cannot {verb} ({error.strerror})",
                where=str(path.parent),
                fix="put it on a local disk, or give --unsafe-fs and risk half-written files where it is killed",
            ) from error
        tell(
            f"{path.parent}: the file system cannot {verb} ({error.strerror}); as asked, files are written without: "
            "what is killed while it saves may leave half of one"
        )
