"""Processes that are forked from a server: multiprocessing starts it as `python -c`, which looks for modules here."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def without_current_directory() -> Iterator[None]:
    """Within `with`, a server that is started imports nothing from there, as the command does not: a random.py may lie
    in it."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
