"""Settings from TOML, read strictly: a key that nobody asked for is an error that names its neighbour."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.errors import UserError

_INT64 = 2**63


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
