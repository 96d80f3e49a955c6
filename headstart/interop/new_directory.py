"""A directory that appears under its name whole, or not at all."""

import contextlib
import fcntl
import glob
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from headstart.errors import UserError
from headstart.text.durable import flush_directory, rename
from headstart.training.checkpoint import disk_full_is_try_again

_ASIDE = ".tmp-"


def refuse_taken(place: Path) -> None:
    """Refuse a place where something is already, or the one that we stand in."""
    with _or_refused(place):
        if not place.exists():
            return
        if not place.is_dir() or any(place.iterdir()):
            raise UserError("is there already, and not empty", where=str(place), fix="give another place")
        if place.samefile(os.curdir):  # it is replaced, and who stands in it would not see the new one
            raise UserError(
                "is the directory that you are in", where=str(place), fix="give the name of a new directory"
            )


@contextlib.contextmanager
def new_directory(place: Path, needed_bytes: int) -> Iterator[Path]:
    """Within `with`, a directory aside to write into; at the end it gets its name. Failing, nothing is left."""
    refuse_taken(place)
    with _or_refused(place):
        final = Path(os.path.realpath(place))  # a link stays one
        final.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(final)
        aside, handle = _locked_aside(final)
    try:
        with _or_refused(place), disk_full_is_try_again(final.parent, needed_bytes):
            yield aside
            flush_directory(aside)
            if final.is_dir():  # empty, as was seen above
                final.rmdir()
            rename(aside, final)
            flush_directory(final.parent)
    finally:
        os.close(handle)
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _or_refused(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot be written to ({error.strerror})", where=str(place), fix="choose another directory"
        ) from error


def _locked_aside(final: Path) -> tuple[Path, int]:
    """A new directory beside the place, locked as long as the handle is open: others see that somebody writes it."""
    while True:
        aside = final.with_name(f"{_ASIDE}{final.name}-{os.getpid()}-{time.monotonic_ns()}")
        aside.mkdir()
        handle = os.open(aside, os.O_RDONLY)
        with contextlib.suppress(OSError):  # where nothing can be locked, nothing is removed as stale either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if aside.exists():  # else a cleaner came between the two calls
            return aside, handle
        os.close(handle)


def _remove_stale(final: Path) -> None:
    """Delete what writers that were killed left behind: directories aside that nobody holds a lock on."""
    for aside in final.parent.glob(f"{_ASIDE}{glob.escape(final.name)}-*"):
        with contextlib.suppress(OSError):
            handle = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(aside)
            finally:
                os.close(handle)
