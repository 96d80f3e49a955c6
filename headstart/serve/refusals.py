"""What a request is refused with: a status, what is wrong and how to mend it, as JSON.

Nothing of the machine is told: no traceback, and of a path only its last part.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from headstart.errors import HeadstartError, TryAgain, visible

# The directories of an absolute path, all but its last name.
_DIRECTORIES = re.compile(r"(?<![\w.])/(?:[^\s/'\"`]+/)+")
_MOST_CHARACTERS = 600
_ONE_OBJECT = "send one JSON object"
_DESCRIBED = "GET /openapi.json says what may be asked"
# What is wrong with a field, and how to mend it, by pydantic's name for it.
_WRONG = {
    "missing": ("is missing", "give it"),
    "extra_forbidden": ("is not known here", _DESCRIBED),
    "string_type": ("is no text", "give a text"),
    "string_too_long": ("is longer than {max_length} characters", "give less of it"),
    "string_unicode": ("is no Unicode text", "give it without lone surrogates"),
    "int_type": ("is no whole number", "give a whole number"),
    "float_type": ("is no number", "give a number"),
    "finite_number": ("is no finite number", "give a number"),
    "bool_type": ("is neither true nor false", "give true or false"),
    "greater_than": ("is too small", "give more than {gt}"),
    "greater_than_equal": ("is too small", "give {ge} or more"),
    "less_than": ("is too large", "give less than {lt}"),
    "less_than_equal": ("is too large", "give {le} at most"),
    "literal_error": ("is not one of those that there are", "give {expected}"),
}


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
        what = f"{Path(error.where).name}: {error.what}" if error.where else error.what
        return Refused(400, _without_paths(what), _without_paths(error.fix))
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return busy("the memory does not suffice for this request")
    return None


def not_valid(error: Mapping[str, Any]) -> Refused:
    """What is wrong with a field, from an error of pydantic's; never what was sent, which may be anything."""
    kind, place = error["type"], ".".join(str(part) for part in error["loc"] if part != "body")
    if kind == "json_invalid":
        return Refused(422, f"the body is not JSON (see its character {place})", _ONE_OBJECT)
    if not place:
        return Refused(422, f"the body is {'missing' if kind == 'missing' else 'no object'}", _ONE_OBJECT)
    words, fix = _WRONG.get(kind, ("cannot be used", _DESCRIBED))
    bounds = {name: _plain(bound) for name, bound in error.get("ctx", {}).items()}
    return Refused(422, f"{place} {words.format_map(bounds)}", fix.format_map(bounds))


def _plain(bound: Any) -> str:
    if isinstance(bound, int | float):
        return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
    return str(bound)


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
