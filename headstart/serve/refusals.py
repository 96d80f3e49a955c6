"""What a request is refused with: a status, what is wrong and how to mend it, as JSON.

Nothing of the machine is told: no traceback, and of a path only its last part.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import torch

from headstart.errors import HeadstartError, TryAgain, visible

# The directories of an absolute path, all but its last name.
_DIRECTORIES = re.compile(r"(?<![\w.])/(?:[^\s/'\"`]+/)+")
_MOST_CHARACTERS = 600


class Refused(Exception):
    """A request that is not served."""

    def __init__(self, status: int, what: str, fix: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(what)
        self.status, self.what, self.fix, self.headers = status, what, fix, headers or {}

    @property
    def body(self) -> bytes:
        return as_json({"error": self.error})

    @property
    def error(self) -> dict[str, str]:
        return {"what": visible(self.what)[:_MOST_CHARACTERS], "fix": visible(self.fix)[:_MOST_CHARACTERS]}


def busy(what: str) -> Refused:
    """There is too much to do just now."""
    return Refused(503, what, "try again in a moment", {"Retry-After": "1"})


def refusal_of(error: Exception) -> Refused | None:
    """What an error of ours says to whoever asked; None for one that only a programmer can mend."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, TryAgain):
        return busy(_without_paths(error.what))
    if isinstance(error, HeadstartError):
        return Refused(400, _without_paths(error.what), _without_paths(error.fix))
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return busy("the memory does not suffice for this request")
    return None


def as_json(answer: Any) -> bytes:
    """An answer as JSON; a number that is not finite is null, since JSON has none."""
    try:
        return json.dumps(answer, allow_nan=False).encode()
    except ValueError:
        return json.dumps(json.loads(json.dumps(answer), parse_constant=lambda name: None)).encode()


def _without_paths(text: str) -> str:
    for place in (os.getcwd(), str(Path.home())):
        text = text.replace(f"{place}/", "")
    return _DIRECTORIES.sub("", text)
