"""What a study will cost, from its settings and the sizes of its files: every pretraining and every trial."""

import dataclasses
import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import UserError
from headstart.model.presets import HeadConfig, ModelConfig, preset
from headstart.plan.choice import BYTES_A_TOKEN, CPU_BATCH_TOKENS, GPU_BATCH_TOKENS
from headstart.plan.machines import Target
from headstart.plan.operations import Lengths
from headstart.plan.time import Prices, evaluation_seconds, step_seconds, with_padding
from headstart.plan.workload import Workload, reading_of
from headstart.study.design import (
    BASELINES,
    Arm,
    Pretraining,
    PretrainPart,
    StudyConfig,
    rates_of,
    steps_of,
    trials_of,
)
from headstart.study.settings import demo_config, read_study, with_demo
from headstart.text.mixture import weighted_path

KEPT_SHARE = 0.9  # of the corpus, where a tenth is held out to measure by
TRAIN_SHARE = 0.72  # of the labelled rows, where valid and test are taken from them
BASELINE_SECONDS = 1.0


@dataclass(frozen=True)
class Part:
    """Some runs that are alike."""

    name: str
    count: int
    steps: int
    """Updates in each, all tries together."""

    seconds: float
    """Of all of them."""


@dataclass(frozen=True)
class Forecast:
    """The parts of a study, and what had to be assumed."""

    parts: list[Part]
    assumptions: list[str]


def forecast(study: str, target: Target, prices: Prices) -> Forecast:
    """Of a STUDY.toml, or of the embedded one where it is called `demo`."""
    if study == "demo":
        with tempfile.TemporaryDirectory() as place:
            return _forecast(with_demo(demo_config(), Path(place)), {}, target, prices)
    config, model = read_study(study)
    if config.study.demo:
        with tempfile.TemporaryDirectory() as place:
            return _forecast(with_demo(config, Path(place)), model, target, prices)
    return _forecast(config, model, target, prices)


def _forecast(config: StudyConfig, overrides: dict[str, Any], target: Target, prices: Prices) -> Forecast:
    sizes = _Sizes.of(config)
    vocab = overrides.get("vocab") or config.tokenizer.vocab
    model = preset(config.study.preset, **{**overrides, "vocab": vocab})
    study = dataclasses.replace(config.study, budgets=config.study.budgets or sizes.budgets())
    trials = list(trials_of(study))
    bases = Counter(base for base in {Pretraining.of(trial, study) for trial in trials} if base is not None)
    parts = []
    for objective in dict.fromkeys(base.objective for base in bases):
        steps, seconds = _pretraining(config.pretrain, model, objective, sizes, target, prices)
        count = sum(base.objective == objective for base in bases)
        parts.append(Part(f"pretraining, {objective}", count, steps, count * seconds))
    extra = parts[0].seconds / parts[0].count if parts else 0.0
    for (arm, budget), count in Counter((trial.arm, trial.budget) for trial in trials).items():
        steps, seconds = _trial(config, model, arm, budget, sizes, target, prices)
        if arm.kind == "scratch-long":
            seconds += extra
        parts.append(Part(f"{arm.name}, {budget:,} labels", count, steps, count * seconds))
    return Forecast(parts, sizes.assumptions(len(rates_of(config.finetune, model))))


@dataclass(frozen=True)
class _Sizes:
    """What the files hold, by their sizes."""

    corpus_tokens: list[float]
    rows: int
    text_tokens: float
    valid_rows: int
    test_rows: int

    @classmethod
    def of(cls, config: StudyConfig) -> "_Sizes":
        corpus = [
            sum(_bytes(weighted_path(f)[0]) for f in phase.corpus) / BYTES_A_TOKEN
            for phase in config.pretrain
        ]
        files = config.finetune
        if not files.train:
            raise UserError("no labelled rows", fix="give a STUDY.toml with [finetune] train, or demo")
        rows, text_bytes = _rows(files.train)
        valid = _rows(files.valid)[0] if files.valid else round(0.08 * rows)
        test = _rows(files.test)[0] if files.test else round(0.2 * rows)
        own = rows if files.valid and files.test else round(TRAIN_SHARE * rows)
        return cls(corpus, own, text_bytes / max(1, rows) / BYTES_A_TOKEN + 2, valid, test)

    def budgets(self) -> list[int]:
        return [*(budget for budget in (50, 200, 800) if budget < self.rows), self.rows]

    def assumptions(self, tries: int) -> list[str]:
        rates = f"{tries} learning rate{'' if tries == 1 else 's'}"
        return [
            f"{BYTES_A_TOKEN:g} bytes a token: {sum(self.corpus_tokens):,.0f} in the corpus, "
            f"{self.text_tokens:.0f} in a labelled text; {rates} for every neural trial; all cores at work "
            "(`--jobs`); reading, tokenising and leaks not counted"
        ]


def _pretraining(
    phases: list[PretrainPart],
    model: ModelConfig,
    objective: str,
    sizes: _Sizes,
    target: Target,
    prices: Prices,
) -> tuple[int, float]:
    """Steps and seconds of all phases; every objective has the first one's operations, and so its time."""
    kinds: dict[str, Any] = {"causal": "lm", "masked": "masked", "masked-nsp": "masked-nsp"}
    head = HeadConfig(kind=kinds[objective])
    all_steps, seconds = 0, 0.0
    for phase, tokens in zip(phases, sizes.corpus_tokens, strict=True):
        length = min(phase.length or model.context, model.context)
        by_default = CPU_BATCH_TOKENS if target.kind == "cpu" else GPU_BATCH_TOKENS
        batch = max(1, (phase.batch_tokens or by_default) // length)
        share = 1.0 if phase.valid else KEPT_SHARE
        steps = phase.steps or max(1, round(phase.epochs * share * tokens / (batch * length)))
        work = Workload(
            config=model, head=head, batch=batch, lengths=Lengths(length), device=target.kind,
            precision=target.precision, reading=reading_of(head.kind), optimizer=phase.optimizer,
            masked_share=phase.mask_share,
        )  # fmt: skip
        measured = evaluation_seconds(work, prices, round((1 - share) * tokens / length))
        all_steps += steps
        seconds += steps * step_seconds(work, prices).total + phase.evaluations * measured
    return all_steps, seconds


def _trial(
    config: StudyConfig,
    model: ModelConfig,
    arm: Arm,
    budget: int,
    sizes: _Sizes,
    target: Target,
    prices: Prices,
) -> tuple[int, float]:
    """Steps and seconds of all tries of one trial."""
    if arm.kind in BASELINES:
        return 0, BASELINE_SECONDS if arm.kind == "tfidf" else 0.1
    finetune = config.finetune
    if finetune.dropout is not None:
        model = dataclasses.replace(model, dropout=finetune.dropout)
    longest = min(finetune.length or model.context, model.context)
    work = Workload(
        config=dataclasses.replace(model, direction=arm.direction), head=HeadConfig(kind="classification"),
        batch=finetune.batch * (2 if finetune.r_drop else 1),
        lengths=Lengths(max(1, min(longest, round(sizes.text_tokens)))), device=target.kind,
        precision=target.precision, reading="padded", average=finetune.average != "none",
        freeze="base" if arm.kind == "frozen" else None,
    )  # fmt: skip
    steps, _ = steps_of(finetune, budget)
    tries = len(rates_of(finetune, model))
    each = steps * step_seconds(with_padding(work), prices).total
    measured = evaluation_seconds(work, prices, finetune.evaluations * sizes.valid_rows)
    return tries * steps, tries * (each + measured) + evaluation_seconds(work, prices, sizes.test_rows)


def _bytes(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path, fix="check the path") from error


def _rows(path: str) -> tuple[int, float]:
    """The rows of a table, and the bytes of their texts, by its first thousand lines."""
    size = _bytes(path)
    taken, lines, text = 0, 0, 0
    with open(path, "rb") as file:
        for line in file:
            taken, lines = taken + len(line), lines + 1
            text += _text_bytes(line) if path.endswith(".jsonl") else len(line)
            if lines == 1000:
                break
    if not lines:
        raise UserError("is empty", where=path, fix="give labelled rows")
    rows = round(size * lines / taken)
    return rows, text * rows / lines


def _text_bytes(line: bytes) -> int:
    try:
        row = json.loads(line)
        return sum(
            len(value.encode()) for key, value in row.items() if isinstance(value, str) and key != "label"
        )
    except (ValueError, AttributeError):
        return len(line)
