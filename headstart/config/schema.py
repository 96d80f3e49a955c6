"""How settings are declared: a dataclass field with its type, its bounds, its default and one sentence of help.

Flags, TOML keys, Python arguments and the parameters of the scikit-learn estimators are made from these fields, so that
each is written down once. `settings` is the one way from what a user gives to a checked dataclass.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import numbers
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from headstart.errors import UserError, nearest, visible

T = TypeVar("T", bound="Settings")
C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])


class Bound(NamedTuple):
    """The numbers that a setting may have."""

    low: float = 0.0
    high: float = sys.float_info.max
    is_open: bool = False  # whether the lower end itself is excluded

    def holds(self, value: float) -> bool:
        return self.low < value <= self.high if self.is_open else self.low <= value <= self.high

    def check(self, name: str, value: float, where: str = "") -> None:
        """Refuse a number that the setting, or the flag, of this name may not have."""
        if not self.holds(value):
            fix = f"give --{name.replace('_', '-')} a number {self}"
            raise UserError(f"{name} is {_shown(value)}", where=where, fix=fix)

    def __str__(self) -> str:
        low = f"{'above' if self.is_open else 'from'} {_spelled(self.low)}"
        return low if self.high >= 2**53 else f"{low} to {_spelled(self.high)}"


def _spelled(number: float) -> str:
    return f"{int(number):,}" if number == int(number) and abs(number) < 1e12 else f"{number:g}"


COUNT = Bound(0, 2**53)
POSITIVE = Bound(0, 2**53, is_open=True)
SHARE = Bound(0, 1)
BELOW_ONE = Bound(0, 0.999999)


class Setting(NamedTuple):
    """A field of a settings class."""

    name: str
    type: Any
    default: Any
    sentence: str
    bound: Bound | None
    is_identity: bool  # another value makes another run: what changes only how long or where it runs does not

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def checked(self, value: Any, where: str = "") -> Any:
        """The value as its type; one of another type, a word that is no choice, a number out of bounds is refused."""
        value = checked(value, self.type, f"{where}: {self.name}" if where else self.name)
        for number in value if isinstance(value, list | tuple) else [value]:
            if self.bound and isinstance(number, int | float):
                self.bound.check(self.name, number, where)
        return value

    def is_unset(self, value: Any) -> bool:
        """Whether the value stands for "not given": a default that nobody may give, such as 0 steps."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and value == self.default and bool(self.bound and not self.bound.holds(value))


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """A part of the configuration: each subclass is a frozen dataclass, whose fields are checked when it is made.

    An object knows which of its fields were given.

    `defaults` and `sentences` are for inherited fields: `class PretrainSettings(Schedule, defaults={"warmup": 0.05})`.
    """

    _given: ClassVar[tuple[str, ...]] = ()
    _sentences: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(
        cls, defaults: Mapping[str, Any] | None = None, sentences: Mapping[str, str] | None = None
    ) -> None:
        cls._sentences = {**cls._sentences, **(sentences or {})}
        inherited = {name: hint for base in cls.__mro__[:0:-1] for name, hint in inspect.get_annotations(base).items()}
        own = inspect.get_annotations(cls)
        cls.__annotations__ = {**{name: inherited[name] for name in defaults or {}}, **own}
        for name, value in (defaults or {}).items():
            setattr(cls, name, value)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        make: Any = cls.__init__

        @functools.wraps(make)
        def init(self: Settings, **given: Any) -> None:
            object.__setattr__(self, "_given", tuple(given))
            make(self, **given)

        cls.__init__ = init  # type: ignore[assignment, method-assign]

    def __post_init__(self) -> None:
        for name, setting in fields_of(type(self)).items():
            value = getattr(self, name)
            if not setting.is_unset(value):
                object.__setattr__(self, name, setting.checked(value))

    @classmethod
    def names(cls) -> set[str]:
        return {f.name for f in dataclasses.fields(cls)}

    @classmethod
    def sentence(cls, name: str) -> str:
        """The help of a field."""
        return fields_of(cls)[name].sentence

    def given(self) -> dict[str, Any]:
        """The fields that were given, without those that stand for "not given"."""
        known, values = fields_of(type(self)), {name: getattr(self, name) for name in self._given}
        return {name: value for name, value in values.items() if not known[name].is_unset(value)}

    def part(self, cls: type[T], **changes: Any) -> T:
        """The fields that another class of settings declares, as that class."""
        shared = {name: getattr(self, name) for name in cls.names() & self.names()}
        return cls(**{**shared, **changes})


def field(default: Any, *, identity: bool = True) -> Any:
    """A field that is made anew for every object, or that does not make another run."""
    metadata = {"identity": identity}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@functools.cache
def _classes_in(module: str) -> dict[str, ast.ClassDef]:
    source = inspect.getsource(sys.modules[module])
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def sentences(cls: type) -> dict[str, str]:
    """The sentence under each field of a dataclass: its help."""
    body = _classes_in(cls.__module__)[cls.__name__].body
    return {
        ast.unparse(declared.target): " ".join(ast.literal_eval(text.value).split())
        for declared, text in itertools.pairwise(body)
        if isinstance(declared, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def fields_of(*classes: type) -> dict[str, Setting]:
    """Every setting of these classes, those that they inherit included, in the order of their declaration."""
    return {name: setting for cls in classes for name, setting in _fields_of(cls).items()}


@functools.cache
def _fields_of(cls: Any) -> dict[str, Setting]:
    bases = [base for base in cls.__mro__[::-1] if dataclasses.is_dataclass(base)]
    help_of = {name: text for base in bases for name, text in sentences(base).items()}  # type: ignore[arg-type]
    help_of |= getattr(cls, "_sentences", {})
    hints, annotated = typing.get_type_hints(cls), typing.get_type_hints(cls, include_extras=True)
    known = {}
    for f in dataclasses.fields(cls):
        hint = annotated[f.name]
        extras = [e for part in (hint, *typing.get_args(hint)) for e in getattr(part, "__metadata__", ())]
        bound = next((extra for extra in extras if isinstance(extra, Bound)), None)
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        is_identity = f.metadata.get("identity", True)
        known[f.name] = Setting(f.name, hints[f.name], default, help_of.get(f.name, ""), bound, is_identity)
    return known


def settings(cls: type[T], given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> T:
    """A checked object from what was given; what was not given has the task's default, else the field's."""
    known, values = fields_of(cls), flat(given)
    for name, value in values.items():
        if name not in known:
            raise UserError(f"unknown setting {name!r}", fix=nearest(name, known), code="unknown-name")
        values[name] = known[name].checked(value)  # what stands for "not given" too: it was given
    return cls(**{**(defaults or {}), **values})


def flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given by its own name, out of groups too: `optimizer=OptimizerConfig(learning_rate=1e-4)`.

    What is None was not given, and neither was what a group was not given. Nothing may be given twice.
    """
    chosen: dict[str, Any] = {}
    for key, value in given.items():
        values = value.given() if isinstance(value, Settings) else {} if value is None else {key: value}
        for name, one in values.items():
            if name in chosen:
                raise UserError(f"{name} is given twice", fix="give it once", code="conflict")
            chosen[name] = one
    return chosen


def takes(settings: Iterable[Setting]) -> Callable[[F], F]:
    """Show these settings in the signature of a function that takes them as keywords; None is "not given"."""

    listed = list(settings)

    def shown(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=one.type | None)
            for one in listed
            if one.name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return shown


# ---- strict construction from plain data ------------------------------------------------------------------------


def build(cls: type[C], data: Mapping[str, Any], where: str) -> C:
    """A dataclass from a mapping, nested ones too; errors about unknown keys and wrong types say where they are."""
    known, values = fields_of(cls), {}
    for key, value in data.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UserError(f"unknown key {key!r}", where=where, fix=nearest(name, known), code="unknown-name")
        values[name] = value if known[name].is_unset(value) else known[name].checked(value, where)
    for name, setting in known.items():
        if name not in values and setting.default is dataclasses.MISSING:
            raise UserError(f"missing key {name!r}", where=where, fix=f"add {name} = …", code="missing")
    return cls(**values)


def checked(value: Any, hint: Any, where: str) -> Any:
    """The value as a type that a setting may have: numbers of numpy, paths and tuples become plain data."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        errors = []
        for option in arguments:
            try:
                return checked(value, option, where)
            except UserError as error:
                errors.append(error)
        raise errors[0]
    if origin is typing.Literal:
        if not isinstance(value, str) or value not in arguments:
            fix = nearest(_shown(value).strip("'"), arguments)
            raise UserError(f"{_shown(value)} is not one of its values", where=where, fix=fix)
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(typing.cast(type, hint), value, where)
    if origin in (list, tuple) and isinstance(value, list | tuple):
        kinds = itertools.repeat(arguments[0], len(value)) if origin is list else arguments
        if origin is tuple and len(value) != len(arguments):
            raise UserError(f"{_shown(value)} has {len(value)} values", where=where, fix=f"give {len(arguments)}")
        pairs = enumerate(zip(value, kinds, strict=True))
        return origin(checked(item, kind, f"{where}[{index}]") for index, (item, kind) in pairs)
    if hint is str and isinstance(value, str | Path):
        return _plain_text(str(value), where)
    if hint is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if hint is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        return _as_float(value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    expected = getattr(hint, "__name__", str(hint))
    fix = f"give a value of type {expected}"
    raise UserError(f"{_shown(value)} is not of the expected type", where=where, fix=fix)


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _plain_text(text: str, where: str) -> str:
    """Text that a file can hold: a name of bytes that are not UTF-8 has halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        fix = "rename the file, or give other words: settings are written as UTF-8"
        raise UserError(f"{visible(text)} is not UTF-8", where=where, fix=fix, code="bad-text") from error
    return text


def _shown(value: Any) -> str:
    """A value in a message; Python refuses to write out an integer of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return "an integer of thousands of digits"
    return text if len(text) <= 200 else f"{text[:200]}…"
