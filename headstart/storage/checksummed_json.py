"""A JSON object that carries its own sha256 as the last key, so that half of it, or another one, is not taken for it.

It guards against what happens to files: a cut, a flipped bit, an edit. Who means to deceive can compute it anew.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.errors import IntegrityError

_END = re.compile(rb', "sha256": "([0-9a-f]{64})"}\n')
_END_BYTES = len(', "sha256": ""}\n') + 64


def dump(data: Mapping[str, Any], indent: int | None = None) -> bytes:
    """The file's bytes; numbers have to be finite, and the data not empty."""
    body = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)[:-1].rstrip().encode()
    return body + f', "sha256": "{_digest(body)}"}}\n'.encode()


def parse(raw: bytes) -> dict[str, Any]:
    """The object; a ValueError where it is not what was written."""
    body, end = raw[:-_END_BYTES], _END.fullmatch(raw[-_END_BYTES:])
    if end is None or _digest(body) != end[1].decode():
        raise ValueError("is not what was written")
    return dict(json.loads(body + b"}"))


def read(path: Path, fix: str) -> dict[str, Any]:
    """The object in a file; an IntegrityError that says what to do where it is not what was written."""
    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise IntegrityError(f"cannot be read ({error.strerror})", where=path, fix=fix) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise IntegrityError("is not what was written", where=path, fix=fix) from error


def _digest(body: bytes) -> str:
    return hashlib.sha256(body + b"}").hexdigest()
