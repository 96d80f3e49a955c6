"""Texts a window at a time: enough to sort by length, and few enough that a file may be larger than memory."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

WINDOW_TEXTS = 1_024
WINDOW_CHARACTERS = 1 << 22

AnyText = TypeVar("AnyText", bound=str | tuple[str, str])


def windows(texts: Iterable[AnyText | None]) -> Iterator[list[AnyText]]:
    """So many texts at a time; None among them says that the next is not there yet, and ends a window."""
    window: list[AnyText] = []
    characters = 0
    for text in texts:
        if text is not None:
            window.append(text)
            characters += len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
        is_full = len(window) >= WINDOW_TEXTS or characters >= WINDOW_CHARACTERS
        if window and (is_full or text is None):
            yield window
            window, characters = [], 0
    if window:
        yield window
