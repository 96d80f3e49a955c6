"""Processes that are forked import what the command imports."""

import contextlib
import os
from collections.abc import Iterator


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
