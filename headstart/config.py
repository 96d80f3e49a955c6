"""Settings from TOML, read strictly: a key that nobody asked for is an error that names its neighbour."""

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headstart.errors import UserError

T = TypeVar("T")
_INT64 = 2**63


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: what was probably meant, or what there is."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file; duplicate keys, integers over 64 bits and broken syntax are errors."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", where=str(path), fix="check the path"
        ) from error
    try:
        data = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8 at byte {error.start}", where=str(path), fix="save the file as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"not valid TOML: {error}", where=str(path), fix="a key may stand once only, strings in quotes"
        ) from error
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


def build(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    """A dataclass from a mapping, nested ones too; unknown keys and wrong types are errors with their place."""
    hints = typing.get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values = {}
    for key, value in data.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UserError(f"unknown key {key!r}", where=where, fix=nearest(name, known))
        values[name] = _checked(value, hints[name], f"{where}: {key}")
    missing = [
        f.name for f in dataclasses.fields(cls)  # type: ignore[arg-type]
        if f.name not in values
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]  # fmt: skip
    if missing:
        raise UserError(f"missing key {missing[0]!r}", where=where, fix=f"add {missing[0]} = …")
    return cls(**values)


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
    return [f"{name} = {_toml_value(value)}" for name, value in table.items() if _is_plain(value)]


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, Mapping) and not _is_tables(value)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    # JSON's strings, numbers and booleans are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _checked(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        errors = []
        for option in arguments:
            try:
                return _checked(value, option, where)
            except UserError as error:
                errors.append(error)
        raise errors[0]
    if origin is typing.Literal:
        if value not in arguments:
            fix = nearest(value, arguments) if isinstance(value, str) else f"one of {', '.join(arguments)}"
            raise UserError(f"{value!r} is not one of its values", where=where, fix=fix)
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(typing.cast(type, hint), value, where)
    if origin in (list, tuple) and isinstance(value, list):
        return origin(_checked(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    expected = getattr(hint, "__name__", str(hint))
    raise UserError(
        f"{value!r} is not of the expected type", where=where, fix=f"give a value of type {expected}"
    )
