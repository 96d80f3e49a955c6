"""Settings from TOML, read strictly: a key that nobody asked for is an error that names its neighbour.

What we write ourselves is sealed: its first line is a comment with the sha256 of the rest.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.errors import IntegrityError, UserError

_INT64 = 2**63
_SEAL = re.compile(rb"# sha256 = ([0-9a-f]{64})\n\n")


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file; duplicate keys, integers over 64 bits and broken syntax are errors."""
    try:
        data = tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise UserError(what, where=path, fix="check the path", code="no-file") from error
    except UnicodeDecodeError as error:
        what, fix = f"not UTF-8 at byte {error.start}", "save the file as UTF-8"
        raise UserError(what, where=path, fix=fix, code="bad-text") from error
    except tomllib.TOMLDecodeError as error:
        what, fix = f"not valid TOML: {error}", "a key may stand once only, strings in quotes"
        raise UserError(what, where=path, fix=fix, code="bad-format") from error
    _refuse_huge(data, str(path), "")
    return data


def _refuse_huge(value: Any, path: str, key: str) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _refuse_huge(inner, path, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_huge(inner, path, f"{key}[{index}]")
    elif isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise UserError(f"{key} is an integer over 64 bits", where=path, fix="give a smaller number")


def sealed_toml(data: Mapping[str, Any]) -> bytes:
    """The bytes of a file that `read_sealed` reads back."""
    body = to_toml(data).encode()
    return f"# sha256 = {hashlib.sha256(body).hexdigest()}\n\n".encode() + body


def read_sealed(path: Path, fix: str) -> dict[str, Any]:
    """A file of ours; an IntegrityError where it is not what was written. One without a seal has to be whole TOML."""
    try:
        raw = path.read_bytes()
        if (seal := _SEAL.match(raw)) and hashlib.sha256(raw[seal.end() :]).hexdigest() != seal[1].decode():
            raise IntegrityError("is not what was written", where=path, fix=fix)
        return read_toml(path)
    except OSError as error:
        raise IntegrityError(f"cannot be read ({error.strerror})", where=path, fix=fix) from error
    except UserError as error:
        raise IntegrityError(error.what, where=path, fix=fix, code=error.code) from error


def to_toml(data: Mapping[str, Any]) -> str:
    """Plain data as TOML, read back by `read_toml`: values first, then tables; None is left out."""
    lines = _toml_lines(data)
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{key}]", *_toml_lines(value)]
        elif _is_tables(value):
            for table in value:
                lines += ["", f"[[{key}]]", *_toml_lines(table)]
    return "\n".join(lines) + "\n"


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} = {_toml_value(value)}"
        for name, value in table.items()
        if value is not None and not isinstance(value, Mapping) and not _is_tables(value)
    ]


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    # JSON's strings, numbers and booleans are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
