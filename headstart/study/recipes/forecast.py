"""What a study will cost: every pretraining and every trial."""

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.config.defaults import VALID_SHARE
from headstart.config.presets import preset
from headstart.config.study import WITHOUT_STEPS, StudyConfig
from headstart.data.labelled import LabelledSet
from headstart.planning.machines import Target
from headstart.planning.time import Prices, evaluation_seconds, step_seconds, with_padding
from headstart.planning.workload import BYTES_A_TOKEN
from headstart.runs.directory import RunDirectory
from headstart.study.data import labelled_sets
from headstart.study.design import (
    Arm,
    Pretraining,
    default_budgets,
    learning_rates_for,
    learning_rates_of,
    steps_of,
    trials_of,
)
from headstart.study.recipes.costs import Sizes, StudyDisk, Workloads
from headstart.study.settings import demo_config, read_study, with_demo

BASELINE_SECONDS = 1.0


@dataclass(frozen=True)
class RunGroup:
    """Some runs that are alike."""

    name: str
    count: int
    steps: int  # updates in each, all tries together
    seconds: float  # of all of them


@dataclass(frozen=True)
class Forecast:
    """The parts of a study, and what had to be assumed."""

    parts: list[RunGroup]
    assumptions: list[str]
    disk: StudyDisk

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)


def forecast(study: str, target: Target, prices: Prices) -> Forecast:
    """Of a STUDY.toml, or of the embedded one where it is called `demo`."""
    config, model = (demo_config(), {}) if study == "demo" else read_study(study)
    with tempfile.TemporaryDirectory() as folder:
        files = with_demo(config, Path(folder))
        return forecast_of(files, model, labelled_sets(files, lambda line: None), target, prices)


def forecast_of(
    config: StudyConfig, overrides: dict[str, Any], sets: Mapping[str, LabelledSet], target: Target, prices: Prices
) -> Forecast:
    """Of a study whose files are there."""
    sizes = Sizes.of(config, sets)
    vocab = overrides.get("vocab") or config.tokenizer.vocab
    model = preset(config.study.preset, **{**overrides, "vocab": vocab})
    if config.study.start:
        model = RunDirectory(config.study.start).read_config().model
    works = Workloads(config, model, sizes, target.kind, target.precision)
    study = dataclasses.replace(
        config.study, budgets=config.study.budgets or default_budgets(sizes.rows, sizes.classes)
    )
    trials = list(trials_of(study))
    bases = Counter(base for base in {Pretraining.of(trial, study) for trial in trials} if base is not None)
    parts = []
    for objective in dict.fromkeys(base.objective for base in bases):
        steps, seconds = _pretraining(works, prices, objective)
        count = sum(base.objective == objective for base in bases)
        parts.append(RunGroup(f"pretraining, {objective}", count, steps, count * seconds))
    extra = parts[0].seconds / parts[0].count if parts else 0.0
    for (arm, budget), count in Counter((trial.arm, trial.budget) for trial in trials).items():
        steps, seconds = _trial(works, prices, arm, budget)
        if arm.kind == "scratch-long":
            seconds += extra
        parts.append(RunGroup(f"{arm.name}, {budget:,} labels", count, steps, count * seconds))
    tries = len(learning_rates_of(config.finetune, model))
    assumed = (
        f"{BYTES_A_TOKEN:g} bytes a token: {sum(sizes.corpus_tokens):,.0f} in the corpus, "
        f"{sizes.text_tokens:.0f} in a labelled text; {tries} learning rate{'' if tries == 1 else 's'} for every "
        "neural trial; all cores at work (`--jobs`); reading, tokenising and leaks not counted"
    )
    return Forecast(parts, [assumed], StudyDisk.of(config, model, sizes.classes, len(bases)))


def _pretraining(works: Workloads, prices: Prices, objective: str) -> tuple[int, float]:
    """Steps and seconds of all phases; every objective has the first one's operations, and so its time."""
    all_steps, seconds = 0, 0.0
    for phase, tokens in zip(works.config.pretrain, works.sizes.corpus_tokens, strict=True):
        work = works.pretraining(phase, objective)
        steps = works.pretraining_steps(phase, tokens, work)
        held_out = 0.0 if phase.valid else VALID_SHARE * tokens / work.lengths.source
        all_steps += steps
        seconds += steps * step_seconds(work, prices).total
        seconds += phase.evaluations * evaluation_seconds(work, prices, round(held_out))
    return all_steps, seconds


def _trial(works: Workloads, prices: Prices, arm: Arm, budget: int) -> tuple[int, float]:
    """Steps and seconds of all tries of one trial."""
    finetune, sizes = works.config.finetune, works.sizes
    if arm.kind == "frozen":  # the base reads every text once, for all trials
        study, texts = works.config.study, sizes.rows + sizes.valid_rows + sizes.test_rows
        texts = round(texts * study.pretrain_seeds / study.seeds / len(study.budgets))
        return 0, evaluation_seconds(works.trial(arm), prices, texts)
    if arm.kind in WITHOUT_STEPS:
        return 0, BASELINE_SECONDS if arm.kind in ("tfidf", "lsa") else 0.1
    work = works.trial(arm)
    steps, _ = steps_of(finetune, budget)
    tries = len(learning_rates_for(arm, finetune, learning_rates_of(finetune, works.model)))
    each = steps * step_seconds(with_padding(work), prices).total
    measured = evaluation_seconds(work, prices, finetune.evaluations * sizes.valid_rows)
    return tries * steps, tries * (each + measured) + evaluation_seconds(work, prices, sizes.test_rows)
