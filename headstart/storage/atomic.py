"""Atomic writes: a file or directory is written under a temporary name, flushed, then renamed.

If the writer is interrupted, what stands under the final name is still complete. A killed writer leaves its temporary
file or directory behind; the next writer of the same name removes it, since nobody holds a lock on it any more.
"""

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from headstart.errors import Log, TryAgain, UserError
from headstart.storage.exhaustion import is_disk_full, try_again

_PREFIX = ".tmp-"


@contextlib.contextmanager
def atomic_file(path: Path, needed_bytes: int = 0) -> Iterator[BinaryIO]:
    """Within `with`, an open temporary file (`file.name` is its path); at the end it gets its name."""
    with full_disk_is_try_again(path.parent, needed_bytes):
        with _os_error_is_user_error(path.parent):
            temporary, handle = _temporary(path, Path.touch)
        try:
            with temporary.open("r+b") as file:
                yield file
                file.flush()
                flush(temporary)
                rename(temporary, path)
            flush(path.parent)
        finally:
            os.close(handle)
            temporary.unlink(missing_ok=True)


def atomic_write(path: Path, data: bytes) -> None:
    """Write a whole file."""
    with atomic_file(path, len(data)) as file:
        file.write(data)


@contextlib.contextmanager
def atomic_directory(path: Path, needed_bytes: int = 0) -> Iterator[Path]:
    """Within `with`, a temporary directory to write into; at the end it gets its name, which must be free by then."""
    with full_disk_is_try_again(path.parent, needed_bytes), _os_error_is_user_error(path):
        final = Path(os.path.realpath(path))  # a link stays one
        temporary, handle = _temporary(final, Path.mkdir)
        try:
            yield temporary
            for written in (*temporary.rglob("*"), temporary):
                flush(written)
            if final.is_dir():  # an empty one may be there
                final.rmdir()
            rename(temporary, final)
            flush(final.parent)
        finally:
            os.close(handle)
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_existing(path: Path) -> None:
    """Refuse to write a directory where something is already, or over the current directory."""
    with _os_error_is_user_error(path):
        if not path.exists():
            return
        if not path.is_dir() or any(path.iterdir()):
            raise UserError("is there already, and not empty", where=path, fix="give another directory", code="exists")
        if path.samefile(os.curdir):  # it is replaced, and a shell inside it would not see the new one
            fix = "give the name of a new directory"
            raise UserError("is the current directory", where=path, fix=fix, code="exists")


def _temporary(final: Path, create: Callable[[Path], object]) -> tuple[Path, int]:
    """A new file or directory beside the final one, and a handle that locks it: others see that it is in use."""
    final.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(final.parent, glob.escape(final.name))
    while True:
        temporary = final.with_name(f"{_PREFIX}{final.name}-{os.getpid()}-{time.monotonic_ns()}")
        create(temporary)
        handle = os.open(temporary, os.O_RDONLY)
        with contextlib.suppress(OSError):  # without locks nothing is removed as stale either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if temporary.exists():  # else another writer removed it before it was locked
            return temporary, handle
        os.close(handle)


def remove_stale(directory: Path, names: str) -> None:
    """Delete what killed writers of these names (a glob pattern) left behind: what nobody holds a lock on."""
    for path in directory.glob(f"{_PREFIX}{names}-*"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            finally:
                os.close(handle)


# ---- Flushing and renaming, and what to do on a file system that cannot.

_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EXDEV)
_log: ContextVar[Log | None] = ContextVar("unsafe file system", default=None)


@contextlib.contextmanager
def unsafe_file_system(is_allowed: bool, log: Log) -> Iterator[None]:
    """Within `with`, do without what the file system does not support, where allowed; the first time is logged."""
    logged = list[str]()

    def once(line: str) -> None:
        if not logged:
            logged.append(line)
            log(line)

    token = _log.set(once if is_allowed else None)
    try:
        yield
    finally:
        _log.reset(token)


def flush(path: Path) -> None:
    """Make sure that what was written to a file, or the names in a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with _unsupported("flush", path):
            os.fsync(handle)
    finally:
        os.close(handle)


def rename(source: Path, target: Path) -> None:
    """Rename a file or a directory atomically; a file of that name is replaced."""
    with _unsupported("rename", target):
        try:
            os.replace(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_and_rename(source, target)
        return
    shutil.move(source, target, shutil.copyfile)  # which copies where it cannot rename


def _copy_and_rename(source: Path, target: Path) -> None:
    """For two file systems: containers have a directory on another one until it is written to."""
    copy = target.with_name(f"{_PREFIX}{target.name}-{os.getpid()}-{time.monotonic_ns()}")
    try:
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True)
        else:
            shutil.copy2(source, copy)
        for written in (*copy.rglob("*"), copy):
            flush(written)
        os.replace(copy, target)
        shutil.rmtree(source) if source.is_dir() else source.unlink()
    finally:
        shutil.rmtree(copy, ignore_errors=True) if copy.is_dir() else copy.unlink(missing_ok=True)


@contextlib.contextmanager
def _unsupported(verb: str, path: Path) -> Iterator[None]:
    """Refuse what the file system does not support, or pass over it where that is allowed."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        directory = next(parent for parent in path.parents if not parent.name.startswith(_PREFIX))
        if (log := _log.get()) is None:
            what = f"the file system cannot {verb} ({error.strerror})"
            fix = "use a local disk, or give --unsafe-fs and risk half-written files if the process is killed"
            raise UserError(what, where=directory, fix=fix, code="unsupported") from error
        log(
            f"{directory}: the file system cannot {verb} ({error.strerror}); as asked, files are written without: "
            "a process that is killed while it saves may leave half a file"
        )


# ---- Errors.


@contextlib.contextmanager
def full_disk_is_try_again(directory: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Report a failing disk, or a full one, which arrives as OSError, RuntimeError or SafetensorError, with numbers."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_disk_full(error):
            if (lacking := try_again(error, str(directory))) is None:
                raise
            raise lacking from error
        there = next(path for path in (directory, *directory.parents) if path.exists())
        needed = f"writing needs {needed_bytes:,} bytes, " if needed_bytes else ""
        free = f"{shutil.disk_usage(there).free:,} bytes are free"
        fix = "free some space and run the same command again, or choose a larger disk"
        what = f"the disk is full: {needed}{free}; existing files are kept"
        raise TryAgain(what, where=directory, fix=fix, code="disk-full") from error


@contextlib.contextmanager
def _os_error_is_user_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if try_again(error) is not None:
            raise
        what = f"cannot be written to ({error.strerror})"
        raise UserError(what, where=path, fix="choose another directory", code="no-file") from error
