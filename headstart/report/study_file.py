"""study.json and timing.json, read strictly: what is there has the type that the report counts on."""

import dataclasses
import json
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.errors import IntegrityError, UserError

FORMAT = 1
_FIX = "run `headstart study` again with the same --out: what is finished is not computed twice"


@dataclass(frozen=True)
class Estimate:
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Corpus:
    file: str
    documents: int | None = None
    tokens: int | None = None
    text_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class CorpusTotal:
    documents: int | None = None
    tokens: int | None = None
    text_bytes: int | None = None


@dataclass(frozen=True)
class Labelled:
    file: str
    rows: int
    classes: dict[str, int]
    sha256: str | None = None


@dataclass(frozen=True)
class Data:
    corpus: list[Corpus]
    train: Labelled
    test: Labelled
    labels: list[str]
    leaks: dict[str, int | None]
    valid: Labelled | None = None
    leaked_test_rows: int | None = None
    corpus_total: CorpusTotal | None = None


@dataclass(frozen=True)
class Model:
    preset: str
    parameters: int | None = None
    vocab: int | None = None
    description: str | None = None


@dataclass(frozen=True)
class Power:
    items: int | None = None
    seeds: int | None = None
    points: float | None = None
    sentence: str | None = None


@dataclass(frozen=True)
class Arm:
    name: str
    kind: str
    title: str
    objective: str | None = None

    @property
    def is_baseline(self) -> bool:
        """Whether it is no network: it does not learn in epochs."""
        return self.kind in ("majority", "tfidf")


@dataclass(frozen=True)
class PretrainingPoint:
    step: int
    loss: float | None = None
    bits_per_byte: float | None = None


@dataclass(frozen=True)
class Pretraining:
    name: str
    objective: str
    seed: int
    status: str
    shuffled: bool = False
    error: str | None = None
    steps: int | None = None
    tokens: int | None = None
    operations: float | None = None
    loss: float | None = None
    bits_per_byte: float | None = None
    curve: list[PretrainingPoint] = field(default_factory=list)

    @property
    def family(self) -> str:
        """What the runs are called that differ in their seed alone."""
        return self.name.removesuffix(f"-s{self.seed}")


@dataclass(frozen=True)
class Try:
    rate: float | None = None
    accuracy: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class CurvePoint:
    epoch: float
    accuracy: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Trial:
    arm: str
    budget: int
    seed: int
    status: str
    error: str | None = None
    rate: float | None = None
    tries: list[Try] = field(default_factory=list)
    steps: int | None = None
    epochs: float | None = None
    operations: float | None = None
    accuracy: float | None = None
    macro_f1: float | None = None
    curve: list[CurvePoint] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The trial's name in timing.json and on disk."""
        return f"{self.arm}-b{self.budget}-s{self.seed}"


@dataclass(frozen=True)
class Score:
    arm: str
    budget: int
    seeds: int
    failed: int
    accuracy: Estimate | None = None
    macro_f1: Estimate | None = None
    accuracy_without_leaks: Estimate | None = None


@dataclass(frozen=True)
class Difference:
    arm: str
    against: str
    budget: int
    reading: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class LabelsToMatch:
    """How many labels the other arm needs for what an arm reaches; bounds outside the budgets are missing."""

    sentence: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    beyond: bool = False
    below: bool = False


@dataclass(frozen=True)
class EpochsToMatch:
    """After how many epochs of how many an arm is where scratch is at its best, after `scratch` epochs."""

    sentence: str
    value: float | None = None
    of: float | None = None
    scratch: float | None = None


@dataclass(frozen=True)
class HeadStart:
    arm: str
    against: str
    budget: int
    labels: LabelsToMatch | None = None
    epochs: EpochsToMatch | None = None


@dataclass(frozen=True)
class BreakEven:
    sentence: str


@dataclass(frozen=True)
class Confusion:
    arm: str
    budget: int
    matrix: list[list[int]]


@dataclass(frozen=True)
class Item:
    row: int
    text: str
    label: str
    right: dict[str, float | None]


@dataclass(frozen=True)
class Study:
    """What a study found; a field that may be null may also be missing."""

    format: int
    name: str
    command: list[str]
    config: dict[str, Any]
    verdict: list[str]
    data: Data
    model: Model
    arms: list[Arm]
    budgets: list[int]
    seeds: list[int]
    pretraining: list[Pretraining]
    trials: list[Trial]
    scores: list[Score]
    differences: list[Difference]
    head_start: list[HeadStart]
    confusion: list[Confusion]
    items: list[Item]
    power: Power | None = None
    break_even: BreakEven | None = None

    def title_of(self, name: str) -> str:
        """What an arm is called in full."""
        return next((arm.title for arm in self.arms if arm.name == name), name)


@dataclass(frozen=True)
class Timing:
    """What the clock said; any part of it may be missing."""

    jobs: int | None = None
    threads: int | None = None
    seconds: float | None = None
    pretraining: dict[str, float | None] = field(default_factory=dict)
    trials: dict[str, float | None] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)


def read_study(directory: Path) -> Study:
    """The results of the study in a directory."""
    path = directory / "study.json"
    if not path.is_file() and (directory / "study.toml").is_file():
        raise UserError(
            "holds a study that is not finished: there is no study.json yet",
            where=str(directory),
            fix="run its `headstart study` command again: it goes on where it was",
        )
    if not path.is_file():
        raise UserError(
            "holds no study: there is no study.json in it" if directory.is_dir() else "is not a directory",
            where=str(directory),
            fix="give the directory that `headstart study --out DIR` wrote",
        )
    found = _json(path)
    if isinstance(found, dict) and found.get("format", FORMAT) != FORMAT:
        raise IntegrityError(
            f"has format {found['format']!r}, this version reads {FORMAT}", where=str(path), fix=_FIX
        )
    study: Study = _typed(Study, found, "", str(path))
    if not study.arms or not study.budgets:
        raise IntegrityError("has no arms or no budgets", where=str(path), fix=_FIX)
    return study


def read_timing(directory: Path) -> Timing | None:
    """The measured times, or None where there is no file."""
    path = directory / "timing.json"
    if not path.is_file():
        return None
    timing: Timing = _typed(Timing, _json(path), "", str(path))
    return timing


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        raise IntegrityError(f"cannot be read ({error})", where=str(path), fix=_FIX) from error


def _typed(kind: Any, value: Any, place: str, path: str) -> Any:
    """The value as the type asks for it; numbers that are not finite do not exist."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        is_missing = value is None or (isinstance(value, float) and not math.isfinite(value))
        return None if is_missing else _typed(inner[0], value, place, path)
    if origin is list and isinstance(value, list):
        return [_typed(inner[0], part, f"{place}[{index}]", path) for index, part in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: _typed(inner[1], part, f"{place}[{key!r}]", path) for key, part in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _record(kind, value, place, path)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
    elif kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    elif kind in (str, int, bool) and type(value) is kind:
        return value
    wanted = {list: "a list", dict: "an object", str: "a text", bool: "true or false"}.get(
        origin or kind, "an object" if dataclasses.is_dataclass(kind) else "a number"
    )
    raise IntegrityError(f"{place.lstrip('.') or 'it'} is not {wanted}", where=path, fix=_FIX)


def _record(kind: Any, value: dict[str, Any], place: str, path: str) -> Any:
    hints, given = typing.get_type_hints(kind), {}
    for entry in dataclasses.fields(kind):
        has_default = (
            entry.default is not dataclasses.MISSING or entry.default_factory is not dataclasses.MISSING
        )
        if entry.name in value:
            if value[entry.name] is None and has_default:
                continue
            given[entry.name] = _typed(hints[entry.name], value[entry.name], f"{place}.{entry.name}", path)
        elif not has_default:
            raise IntegrityError(f"{place}.{entry.name} is missing".lstrip("."), where=path, fix=_FIX)
    return kind(**given)
