"""Error answers: a status, what is wrong and how to fix it, as JSON.

They reveal nothing of the machine: no traceback, and of a path only its last part.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from starlette.responses import Response

from headstart.errors import HeadstartError, TryAgain, visible

# The directories of an absolute path, all but its last name.
_DIRECTORIES = re.compile(r"(?<![\w.])/(?:[^\s/'\"`]+/)+")
_MOST_CHARACTERS = 600
_ONE_OBJECT = "send one JSON object"
_DESCRIBED = "GET /openapi.json describes the fields"

# What is wrong with a field, and how to fix it, by pydantic's name for it.
_WRONG = {
    "missing": ("is missing", "give it"),
    "extra_forbidden": ("is an unknown field", _DESCRIBED),
    "string_type": ("is not a string", "give a string"),
    "string_too_long": ("is longer than {max_length} characters", "give a shorter one"),
    "string_unicode": ("is not valid Unicode", "give it without lone surrogates"),
    "int_type": ("is not an integer", "give an integer"),
    "float_type": ("is not a number", "give a number"),
    "finite_number": ("is not a finite number", "give a finite number"),
    "bool_type": ("is not a boolean", "give true or false"),
    "neither_zero_nor_enough": ("is too small", "give 0, or {ge} or more"),
    "greater_than": ("is too small", "give more than {gt}"),
    "greater_than_equal": ("is too small", "give {ge} or more"),
    "less_than": ("is too large", "give less than {lt}"),
    "less_than_equal": ("is too large", "give {le} at most"),
    "list_type": ("is not a list", "give a list"),
    "too_long": ("has more than {max_length} entries", "give fewer, in several requests"),
    "too_short": ("is empty", "give one at least"),
    "literal_error": ("is not one of the choices", "give {expected}"),
}


class RequestError(Exception):
    """A request that cannot be answered."""

    def __init__(self, status: int, what: str, fix: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(what)
        self.status, self.what, self.fix, self.headers = status, what, fix, headers or {}

    @property
    def response(self) -> Response:
        return Response(self.body, self.status, self.headers, "application/json")

    @property
    def body(self) -> bytes:
        return as_json({"error": self.error})

    @property
    def error(self) -> dict[str, str]:
        return {"what": visible(self.what)[:_MOST_CHARACTERS], "fix": visible(self.fix)[:_MOST_CHARACTERS]}


def busy(what: str, fix: str = "try again in a moment") -> RequestError:
    """The server has too much to do."""
    return RequestError(503, what, fix, {"Retry-After": "1"})


def error_for(error: Exception) -> RequestError | None:
    """The answer to an error of ours; None for one that only a programmer can fix."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, TryAgain):
        return busy(_without_paths(error.what))
    if isinstance(error, HeadstartError):
        what = f"{Path(error.where).name}: {error.what}" if error.where else error.what
        return RequestError(400, _without_paths(what), _without_paths(error.fix))
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return busy("not enough memory for this request")
    return None


def invalid_field(error: Mapping[str, Any]) -> RequestError:
    """What is wrong with a field, from pydantic's error; never the value that was sent."""
    kind, field = error["type"], ".".join(str(part) for part in error["loc"] if part != "body")
    if kind == "json_invalid":
        return RequestError(422, f"the body is not JSON (at character {field})", _ONE_OBJECT)
    if not field:
        wrong = "missing" if kind == "missing" else "not an object"
        return RequestError(422, f"the body is {wrong}", _ONE_OBJECT)
    what, fix = _WRONG.get(kind, ("is not valid", _DESCRIBED))
    kinds, given = {int: ",", float: "g"}, error.get("ctx", {})
    bounds = {name: format(bound, kinds.get(type(bound), "")) for name, bound in given.items()}
    return RequestError(422, f"{field} {what.format_map(bounds)}", fix.format_map(bounds))


def as_json(answer: Any) -> bytes:
    """An answer as JSON; numbers that are not finite become null."""
    try:
        return json.dumps(answer, allow_nan=False).encode()
    except ValueError:
        return json.dumps(json.loads(json.dumps(answer), parse_constant=lambda name: None)).encode()


def _without_paths(text: str) -> str:
    for directory in (os.getcwd(), str(Path.home())):
        text = text.replace(f"{directory}/", "")
    return _DIRECTORIES.sub("", text)
