"""Processes that are forked from a server, which multiprocessing starts as `python -c`.

So it would import what lies in the current directory, which the command does not: a random.py, say.
"""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def without_current_directory() -> Iterator[None]:
    """Within `with`, a server that is started imports nothing from the current directory."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
