"""Work that nobody waits for any more ends between two of its steps.

Whoever starts it in a thread says how to tell that it is cancelled. What takes long asks before each of its steps: a
batch, a block of text, a part of a prompt, a step of a beam.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_cancelled: ContextVar[Callable[[], bool]] = ContextVar("is_cancelled", default=lambda: False)


class Cancelled(Exception):
    """Nobody waits for the result."""


@contextmanager
def cancelled_when(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """What is computed inside ends at its next step once this is true."""
    before = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(before)


def stop_if_cancelled() -> None:
    """Called before a step that takes a while."""
    if _is_cancelled.get()():
        raise Cancelled
