"""Processes that others start: they import what the command imports, and end with who started them."""

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Iterator

PR_SET_PDEATHSIG = 1  # of Linux
WATCH_SECONDS, GRACE_SECONDS = 1.0, 60.0


@contextlib.contextmanager
def without_current_directory() -> Iterator[None]:
    """Within `with`, a fork server that is started imports nothing from the current directory.

    multiprocessing starts it as `python -c`, so it would import what lies there, a random.py, say.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


def die_with_parent() -> None:
    """Be killed when the parent ends, even while stopped; only Linux knows how."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def stopped_with_parent() -> Iterator[None]:
    """Within `with`, this process is asked to stop when its parent has ended; if it does not, it is ended."""
    parent, is_over = os.getppid(), threading.Event()

    def watch() -> None:
        while not is_over.wait(WATCH_SECONDS):
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)
                if not is_over.wait(GRACE_SECONDS):  # it waits for others that are gone
                    os._exit(128 + signal.SIGTERM)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
