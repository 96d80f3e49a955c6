"""The record of a study: study.json and timing.json, each field declared once.

results.py fills it, verdict.py reads it, and the report and the command line read it back from disk. Shares are
fractions. A field whose type allows None is null where there is nothing to say, and may be missing.
"""

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.config.schema import fields_of
from headstart.config.study import WITHOUT_STEPS, Metric
from headstart.errors import IntegrityError, UserError
from headstart.runs.base_status import BaseStatus
from headstart.runs.directory import finite
from headstart.storage import checksummed_json

FORMAT = 1
_FIX = "run `headstart study` again with the same --out: finished work is not computed again"


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class _Record:
    """Its subclasses are frozen dataclasses, whose fields are given by name."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class Interval(_Record):
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float


class CorpusFile(_Record):
    file: str
    sha256: str
    documents: int | None = None
    tokens: int | None = None
    text_bytes: int | None = None


class CorpusTotal(_Record):
    documents: int
    tokens: int
    text_bytes: int


class LabelledFile(_Record):
    file: str
    rows: int
    classes: dict[str, int]
    sha256: str


class DataRecord(_Record):
    corpus: list[CorpusFile]
    train: LabelledFile
    valid: LabelledFile
    test: LabelledFile
    labels: list[str]
    leaks: dict[str, int]
    """Rows of one set that also occur in another, such as test_in_train; `near_` for near-duplicates."""

    leaked_test_rows: int
    warnings: list[str] = field(default_factory=list)
    """What is probably a mistake in the rows, as `data check` says it."""

    corpus_total: CorpusTotal | None = None


class ModelRecord(_Record):
    preset: str
    parameters: int
    vocab: int
    description: str


class Power(_Record):
    """The smallest difference, in points, that a study of this size detects."""

    items: int
    seeds: int
    points: float
    sentence: str


class ArmRecord(_Record):
    name: str
    kind: str
    objective: str | None = None
    title: str

    @property
    def has_epochs(self) -> bool:
        """Whether it is a network, which learns in epochs."""
        return self.kind not in WITHOUT_STEPS


class PretrainingPoint(_Record):
    step: int
    loss: float
    bits_per_byte: float | None = None


class PretrainingRecord(_Record):
    name: str
    objective: str
    seed: int
    shuffled: bool = False
    status: str
    error: str | None = None
    steps: int = 0
    tokens: int = 0
    operations: float = 0.0
    loss: float | None = None
    bits_per_byte: float | None = None
    curve: list[PretrainingPoint] = field(default_factory=list)
    base: BaseStatus | None = None
    """Whether it has learned; None of the shuffled control, which cannot."""

    @property
    def family(self) -> str:
        """The name that runs share which differ only in their seed."""
        return self.name.removesuffix(f"-s{self.seed}")


class Try(_Record):
    """A learning rate, C of a logistic regression, or the weight of a mix, and what it reached on valid."""

    value: float
    accuracy: float | None = None
    macro_f1: float | None = None
    loss: float | None = None


class CurvePoint(_Record):
    """After an epoch, on valid."""

    epoch: float
    accuracy: float | None = None
    macro_f1: float | None = None
    loss: float | None = None


class TrialRecord(_Record):
    arm: str
    budget: int
    seed: int
    status: str
    error: str | None = None
    operations: float = 0.0
    chosen: float | None = None  # the value of the try that is best on valid
    tries: list[Try] = field(default_factory=list)
    steps: int = 0
    epochs: float = 0.0
    curve: list[CurvePoint] = field(default_factory=list)
    accuracy: float | None = None
    macro_f1: float | None = None

    @property
    def name(self) -> str:
        """Its name in timing.json and on disk."""
        return f"{self.arm}-b{self.budget}-s{self.seed}"

    def valid_score(self, metric: Metric) -> float | None:
        """Of the try that was chosen."""
        return next((getattr(one, metric) for one in self.tries if one.value == self.chosen), None)


Run = PretrainingRecord | TrialRecord


class Score(_Record):
    arm: str
    budget: int
    seeds: int
    failed: int
    accuracy: Interval | None = None
    macro_f1: Interval | None = None
    accuracy_without_leaks: Interval | None = None
    macro_f1_without_leaks: Interval | None = None
    above_majority: Interval | None = None
    """The metric less that of always the majority class, paired by seeds and test items."""


class DifferenceRecord(_Record):
    """The metric of `arm` minus that of `against`; `p_holm` is corrected over the budgets of the pair."""

    arm: str
    against: str
    budget: int
    reading: str  # equal labels, or equal compute
    value: float
    low: float
    high: float
    p: float
    p_holm: float

    @property
    def is_clear(self) -> bool:
        """Whether it can be claimed: by Holm's p and by its interval."""
        return self.p_holm < 0.05 and not self.low <= 0 <= self.high


class LabelsToMatch(_Record):
    """How many labels the other arm needs to match, with the 95 % interval."""

    value: float | None = None  # None where all available labels are not enough
    low: float | None = None  # None where even the smallest budget may be enough
    high: float | None = None  # None where all available labels may not be enough
    beyond: bool = False  # it needs more labels than there are
    below: bool = False  # the smallest budget, which is `value`, is already enough
    sentence: str = ""


class EpochsToMatch(_Record):
    """After how many epochs of how many an arm has the best of scratch, which needs `scratch` epochs; `accuracy` is
    that best, in the study's metric."""

    value: float | None = None
    of: float | None = None
    scratch: float | None = None
    accuracy: float | None = None
    sentence: str = ""


class Savings(_Record):
    """What an arm saves at a budget."""

    arm: str
    against: str
    budget: int
    labels: LabelsToMatch
    epochs: EpochsToMatch


class BreakEven(_Record):
    """How many fine-tunings cost as much as the pretraining."""

    finetunings: float
    sentence: str


class Confusion(_Record):
    """Counts over all seeds: a row for each true label, a column for each predicted one."""

    arm: str
    budget: int
    matrix: list[list[int]]


class Item(_Record):
    """A test text, and the share of seeds that each arm gets right."""

    row: int
    text: str
    label: str
    right: dict[str, float]


class KeptModel(_Record):
    """The model in STUDY/model: an arm, and its mean scores on test over all seeds."""

    arm: str
    kind: str
    budget: int
    accuracy: Interval | None = None
    macro_f1: Interval | None = None


class StudyRecord(_Record):
    """study.json."""

    format: int
    name: str
    command: list[str]
    config: dict[str, Any]
    verdict: list[str]
    data: DataRecord
    model: ModelRecord
    learning_rates: list[float]
    power: Power
    metric: Metric = "accuracy"
    """What arms are chosen by on valid, and what differences, savings, verdict and pictures are of."""

    arms: list[ArmRecord]
    budgets: list[int]
    seeds: list[int]
    pretraining: list[PretrainingRecord]
    start: BaseStatus | None = None
    """Whether the given start has learned, where that is known."""

    trials: list[TrialRecord]
    scores: list[Score]
    differences: list[DifferenceRecord]
    savings: list[Savings]
    break_even: BreakEven | None = None
    confusion: list[Confusion]
    items: list[Item]
    kept_model: KeptModel | None = None

    def __repr__(self) -> str:
        arms, budgets = ", ".join(arm.name for arm in self.arms), ", ".join(f"{one:,}" for one in self.budgets)
        return f"<StudyRecord {self.name}: {arms}; {budgets} labels; seeds: {len(self.seeds)}>"

    @property
    def metric_title(self) -> str:
        return {"accuracy": "accuracy", "macro_f1": "macro-F1"}[self.metric]

    def of_metric(self, scores: Score | KeptModel, suffix: str = "") -> Interval | None:
        """Of several scores the one that counts."""
        found: Interval | None = getattr(scores, self.metric + suffix)
        return found

    def valid_scores(self, budget: int) -> dict[str, float]:
        """The mean over seeds on valid of each arm that has any at this budget."""
        reached: dict[str, list[float]] = {}
        for trial in self.trials:
            if trial.budget == budget and (score := trial.valid_score(self.metric)) is not None:
                reached.setdefault(trial.arm, []).append(score)
        return {arm: sum(values) / len(values) for arm, values in reached.items()}

    @classmethod
    def load(cls, directory: Path) -> "StudyRecord":
        """Read the study.json of a directory."""
        path = directory / "study.json"
        if not path.is_file() and (directory / "study.toml").is_file():
            what = "the study is not finished: there is no study.json yet"
            fix = "run its `headstart study` command again to resume it"
            raise UserError(what, where=str(directory), fix=fix, code="missing")
        if not path.is_file():
            is_there = directory.is_dir()
            what = "holds no study: there is no study.json in it" if is_there else "is not a directory"
            fix = "give the directory that `headstart study --out DIR` wrote"
            raise UserError(what, where=str(directory), fix=fix, code="not-a-run")
        content = checksummed_json.read(path, _FIX)
        if content.get("format", FORMAT) != FORMAT:
            what = f"has format {content['format']!r}, this version reads {FORMAT}"
            raise IntegrityError(what, where=str(path), fix=_FIX)
        record: StudyRecord = parse(cls, content, str(path))
        if not record.arms or not record.budgets:
            raise IntegrityError("has no arms or no budgets", where=str(path), fix=_FIX)
        return record

    def to_json(self) -> bytes:
        return checksummed_json.dump(finite(dataclasses.asdict(self)), indent=1)

    @property
    def failed(self) -> list[Run]:
        runs: list[Run] = [*self.pretraining, *self.trials]
        return [run for run in runs if run.status != "done"]

    def title_of(self, name: str) -> str:
        """The full title of an arm."""
        return next((arm.title for arm in self.arms if arm.name == name), name)


class Timing(_Record):
    """timing.json: measured times, any of which may be missing."""

    jobs: int | None = None
    threads: int | None = None
    seconds: float | None = None
    pretraining: dict[str, float | None] = field(default_factory=dict)
    trials: dict[str, float | None] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> "Timing | None":
        """Read the timing.json of a directory, if there is one."""
        path = directory / "timing.json"
        return parse(cls, checksummed_json.read(path, "delete it"), str(path)) if path.is_file() else None


def parse(kind: Any, value: Any, path: str, key: str = "") -> Any:
    """JSON as the type asks for it; a number that is not finite counts as null."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        value = None
    if origin is typing.Literal and value in inner:
        return value
    if origin in (types.UnionType, typing.Union):
        return None if value is None else parse(inner[0], value, path, key)
    if origin is list and isinstance(value, list):
        return [parse(inner[0], part, path, f"{key}[{index}]") for index, part in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {name: parse(inner[1], part, path, f"{key}[{name!r}]") for name, part in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        cls, given = typing.cast(type, kind), {}
        for name, declared in fields_of(cls).items():
            if name not in value and declared.default is dataclasses.MISSING:
                raise IntegrityError(f"{key}.{name} is missing".lstrip("."), where=path, fix=_FIX)
            if value.get(name) is not None or declared.default is dataclasses.MISSING:
                given[name] = parse(declared.type, value[name], path, f"{key}.{name}")
        return cls(**given)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind in (str, int, bool) and type(value) is kind:
        return value
    words = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    wanted = words.get(origin or kind, "an object")
    raise IntegrityError(f"{key.lstrip('.') or 'it'} is not {wanted}", where=path, fix=_FIX)
