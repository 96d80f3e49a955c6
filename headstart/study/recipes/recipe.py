"""The recipe of a study: what it decides by itself from the text, the labels, the machine and the time.

The laws of the base are those of planning/base.py. What is given is left alone. A recipe is decided once, and kept in
the study's directory: a resumed study trains the same steps.
"""

import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headstart.config.defaults import VALID_SHARE
from headstart.config.presets import preset
from headstart.config.schema import Settings, fields_of
from headstart.config.study import WITHOUT_STEPS, StudyConfig
from headstart.config.toml import read_sealed
from headstart.config.training import seconds_in
from headstart.errors import Log, RunFailed
from headstart.hardware import available_cores
from headstart.machine import Device, choose
from headstart.planning.base import (
    MOSTLY_READ,
    PRESET,
    Size,
    base_recipe,
    finetune_recipe,
    largest,
    most_passes,
    step_operations,
    worth,
)
from headstart.planning.figures import format_duration
from headstart.planning.workload import BYTES_A_TOKEN, Workload
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_write
from headstart.study.design import arms_of, default_budgets, learning_rates_for, learning_rates_of, steps_of
from headstart.study.execution.scheduler import ScheduledTask
from headstart.study.execution.workers import run_in_processes
from headstart.study.recipes.costs import Sizes, Workloads
from headstart.training.calibration.calibrate import stretches

RECIPE = "recipe.json"
Sections = dict[str, dict[str, Any]]  # settings by part: study, tokenizer, pretrain, finetune, model


# The shares of the time: most for trials, what is left over for what is not foreseen. A GPU's bases are large enough
# for more pretraining to be worth more than more seeds.
TRIALS_SHARE = {"cpu": 0.45, "cuda": 0.3}
SPARE_SHARE, FIRST_GUESS = 0.05, 0.5
START_SECONDS = {"cpu": 0.0, "cuda": 28.0}  # to start, and to measure the steps
SECONDS_A_MEGABYTE = {"cpu": 3.5, "cuda": 0.8}  # of the text: read, searched for leaks, tokenised, and LSA on a CPU
TFIDF_SECONDS_A_MEGABYTE = 1.5  # of the labelled texts, for each trial of TF-IDF
TRIAL_SECONDS = {"cpu": 1.5, "cuda": 3.0}  # to start a trial, besides its steps
SIDE_BY_SIDE = {"cpu": 1, "cuda": 4}  # trials at once: on a CPU each has all cores
BASELINES_AT_ONCE = {"cpu": 2, "cuda": 4}  # of one core each
SPEED_UP = {"cpu": 1.0, "cuda": 1.5}  # of the steps of trials side by side
EVALUATION_SHARE = 1 / 3  # of a step's time, forward alone
LEAST_SHARE = 0.25  # of the time for pretraining, even where the trials take longer
PLANS = ((5, 2), (5, 1), (3, 1), (2, 1), (1, 1))  # seeds, learning rates: the first that fits is taken


class Question(NamedTuple):
    """What a recipe is chosen for."""

    config: StudyConfig
    model: dict[str, Any]
    """Fields of the model that are given."""

    sizes: Sizes
    device: Device
    given: frozenset[str]
    """Settings, such as study.seeds, that are kept even where they have their default value."""

    def answered(self, settings: Sections) -> tuple[StudyConfig, dict[str, Any]]:
        """The settings with what a recipe decides and nobody gave, and the fields of the model."""

        def filled(name: str, part: Any) -> Any:
            values = {k: v for k, v in settings.get(name, {}).items() if not self.is_given(name, part, k)}
            return dataclasses.replace(part, **values)

        config = self.config
        parts = {name: filled(name, getattr(config, name)) for name in ("study", "tokenizer", "finetune")}
        phases = [filled("pretrain", phase) for phase in config.pretrain]
        shape = {} if self.is_given("study", config.study, "preset") else settings.get("model", {})
        return dataclasses.replace(config, **parts, pretrain=phases), {**shape, **self.model}

    def is_given(self, name: str, part: Settings, key: str) -> bool:
        if name == "pretrain" and key == "steps":
            return any(getattr(part, duration) for duration in ("steps", "epochs"))
        return f"{name}.{key}" in self.given or getattr(part, key) != fields_of(type(part))[key].default


class Recipe(NamedTuple):
    """Settings by part, and what they are in a few sentences."""

    settings: Sections
    sentences: list[str]
    forecast: dict[str, float] | None = None
    """What the steps of pretraining were reckoned with, in seconds, until they are final (recipes/timing.py)."""

    seconds: float = 0.0
    """What the study takes in all."""

    @classmethod
    def read(cls, file: Path) -> "Recipe":
        return cls(**checksummed_json.read(file, "delete it: the settings are then those of study.toml"))

    def to_json(self) -> bytes:
        return checksummed_json.dump(self._asdict(), indent=1)


def with_recipe(question: Question, directory: Path, log: Log) -> tuple[StudyConfig, dict[str, Any]]:
    """The settings with the recipe's, and the fields of the model."""
    recipe = recipe_of(question, directory, log)
    for sentence in recipe.sentences:
        log(sentence)
    return question.answered(recipe.settings)


def recipe_of(question: Question, directory: Path, log: Log) -> Recipe:
    """The recipe, chosen once and kept in the directory; where it is missing there, the settings of study.toml."""
    file, kept = directory / RECIPE, directory / "study.toml"
    if not file.exists() and kept.exists():
        log(f"{file} is missing: the settings are those of study.toml")
        settings = read_sealed(kept, f"bring it back from a copy, or delete {directory}: the study then starts anew")
        return Recipe({**settings, "pretrain": settings["pretrain"][0]}, [])
    if not file.exists():
        log("measuring this machine, to choose a recipe")
        # In another process: threads and a GPU that were used here would be lost to the workers.
        ended = run_in_processes([ScheduledTask("recipe", (question, file))], decide, 1)["recipe"]
        if ended.error:
            fix = "give --preset and --pretrain-steps"
            raise RunFailed(f"no recipe could be chosen: {ended.error}", fix=fix)
    return Recipe.read(file)


def decide(argument: tuple[Question, Path], on_share: Callable[[float], None]) -> None:
    """Choose a recipe and keep it, in a worker's process."""
    question, file = argument
    atomic_write(file, Decision(question).recipe().to_json())


def steps_in(seconds: float, taken: float, forecast: dict[str, float]) -> int:
    """The steps of each phase of pretraining, where everything else takes so long."""
    left = ((1 - SPARE_SHARE) * seconds - taken) / forecast["bases"] - forecast["evaluating"]
    left = max(left, LEAST_SHARE * seconds / forecast["bases"])
    return max(1, int(min(left / forecast["step"], forecast["most"]) // forecast["phases"]))


class TrialSeconds(NamedTuple):
    """What the trials of a study take: those without a network, those from scratch, and those from a base."""

    baselines: float
    from_scratch: float
    from_base: float


class Decision:
    """One recipe in the making."""

    def __init__(self, question: Question) -> None:
        self.question, self.sizes = question, question.sizes
        study = question.config.study
        self.seconds = seconds_in(study.time)
        is_cpu = choose(question.device).device.type == "cpu"
        is_given = not is_cpu or question.is_given("study", study, "threads")
        self.threads = study.threads if is_given else available_cores()
        self.machine = choose(question.device, study.precision, self.threads, fast=study.fast)
        self.machine.prepare()
        self.kind: Any = self.machine.device.type
        self.is_gpu = self.kind == "cuda"
        self.tokens = sum(self.sizes.corpus_tokens) + self.sizes.rows * self.sizes.text_tokens
        megabytes = self.tokens * BYTES_A_TOKEN / 1e6
        self.setup = START_SECONDS[self.kind] + SECONDS_A_MEGABYTE[self.kind] * megabytes

    def recipe(self) -> Recipe:
        size, step = self._size()
        settings = self._settings(size)
        works = self._works(settings)
        trials = self._plan(works, settings, self._measured(works.trial(arms_of(works.config.study)[-1])))
        study, phase = self.question.answered(settings)[0].study, works.config.pretrain[0]
        work = works.pretraining(phase, study.objectives[0])
        pass_steps, phases = self._pass_steps(work), len(works.config.pretrain)
        forecast = {
            "step": step, "phases": phases, "most": most_passes(study.objectives[0], work.config.dropout) * pass_steps,
            "bases": len(study.objectives) * min(study.pretrain_seeds, study.seeds) * (1 + ("shuffled" in study.arms)),
            "evaluating": phase.evaluations * VALID_SHARE * EVALUATION_SHARE * pass_steps * step,
            "from_scratch": trials.from_scratch, "from_base": trials.from_base,
        }  # fmt: skip
        own = trials.from_scratch + trials.from_base + (0.0 if self.is_gpu else trials.baselines)
        settings["pretrain"]["steps"] = steps_in(self.seconds, self.setup + own, forecast)
        phase = self.question.answered(settings)[0].pretrain[0]
        steps = phases * works.pretraining_steps(phase, self.tokens, work)
        pretraining = forecast["bases"] * (steps * step + forecast["evaluating"])
        if self.is_gpu:  # which a pretraining has to itself: the baselines are computed beside it
            pretraining = max(pretraining, trials.baselines)
        is_given = self.question.is_given("pretrain", self.question.config.pretrain[0], "steps")
        sentences = self._sentences(settings, work, steps, (pretraining, own))
        return Recipe(settings, sentences, None if is_given else forecast, self.setup + pretraining + own)

    # ---- the base -----------------------------------------------------------------------------------------------

    def _size(self) -> tuple[Size, float]:
        """The largest shape that gets its operations, and the seconds of its step.

        It has about half of the time, and no more passes over the text than it can use.
        """
        steps = dict[Size, float]()

        def operations_on(size: Size) -> float:
            works = self._works(self._settings(size))
            objective = works.config.study.objectives[0]
            work = works.pretraining(works.config.pretrain[0], objective)
            steps[size] = self._measured(work)
            most = most_passes(objective, work.config.dropout) * self._pass_steps(work)
            return step_operations(work) * min(FIRST_GUESS * self.seconds / steps[size], most)

        size = largest(operations_on)
        if size not in steps:
            operations_on(size)
        return size, steps[size]

    def _settings(self, size: Size) -> Sections:
        """What follows from the shape alone."""
        base = base_recipe(size, sum(self.sizes.corpus_tokens), self.sizes.text_tokens)
        finetune = {**finetune_recipe(size), "length": base.pretrain["length"], "evaluations": 3}
        given = self.question.config.finetune
        if given.learning_rates or given.learning_rate:  # they are for all arms
            finetune = {name: value for name, value in finetune.items() if not name.endswith("learning_rate")}
        return {
            "study": {"preset": PRESET, "objectives": [base.objective], "threads": self.threads},
            "model": base.model,
            "tokenizer": base.tokenizer,
            "pretrain": {**base.pretrain, "labelled_texts": True, "evaluations": 4},
            "finetune": finetune,
        }

    # ---- the trials ---------------------------------------------------------------------------------------------

    def _plan(self, works: Workloads, settings: Sections, step: float) -> "TrialSeconds":
        """Put in the seeds, learning rates and budgets for which there is time; returns what they take."""
        rates = settings["finetune"]["learning_rates"]
        budgets = default_budgets(self.sizes.rows, self.sizes.classes)
        fewer = [b for b in budgets if b != 800], [b for b in budgets if b in (200, budgets[-1])]
        for seeds, tries, kept in [*((*plan, budgets) for plan in PLANS), *((1, 1, some) for some in fewer)]:
            settings["study"] |= {"seeds": seeds, "budgets": kept}
            settings["finetune"]["learning_rates"] = rates[:tries]
            config = self.question.answered(settings)[0]
            seconds = self._trial_seconds(dataclasses.replace(works, config=config), step)
            if sum(seconds[self.is_gpu :]) <= TRIALS_SHARE[self.kind] * self.seconds:
                break
        return seconds

    def _trial_seconds(self, works: Workloads, step: float) -> "TrialSeconds":
        finetune, study, sizes = works.config.finetune, works.config.study, self.sizes
        text = step / finetune.batch * EVALUATION_SHARE
        scored = sizes.valid_rows + sizes.test_rows
        megabyte = TFIDF_SECONDS_A_MEGABYTE / BASELINES_AT_ONCE[self.kind] * sizes.text_tokens * BYTES_A_TOKEN / 1e6
        baselines = ((len(study.budgets) - 1) * study.seeds + 1) * scored * megabyte + sizes.rows * megabyte
        networks = {True: 0.0, False: 0.0}
        for arm in arms_of(study):
            tries = len(learning_rates_for(arm, finetune, learning_rates_of(finetune, works.model)))
            if arm.kind == "frozen":  # reads every text once
                networks[False] += (sizes.rows + scored) * text
            for budget in () if arm.kind in WITHOUT_STEPS else study.budgets:
                steps = steps_of(finetune, min(budget, sizes.rows))[0]
                seconds = tries * (steps * step + finetune.evaluations * sizes.valid_rows * text)
                seconds = (seconds + scored * text) / SPEED_UP[self.kind]
                seconds += tries * TRIAL_SECONDS[self.kind] / SIDE_BY_SIDE[self.kind]
                networks[arm.kind == "scratch"] += study.seeds * seconds
        return TrialSeconds(baselines, networks[True], networks[False])

    # ---- measuring ----------------------------------------------------------------------------------------------

    def _works(self, settings: Sections) -> Workloads:
        config, fields = self.question.answered(settings)
        model = preset(config.study.preset, **{**fields, "vocab": config.tokenizer.vocab})
        precision: Any = self.machine.precision
        return Workloads(config, model, self.sizes, self.kind, precision)

    def _pass_steps(self, work: Workload) -> float:
        """Steps of one pass over the text."""
        return (1 - VALID_SHARE) * self.tokens / (work.batch * work.lengths.source)

    def _measured(self, work: Workload) -> float:
        """Of one step here, measured."""
        return statistics.median(stretches(work, self.machine))

    # ---- words --------------------------------------------------------------------------------------------------

    def _sentences(self, settings: Sections, work: Workload, steps: int, seconds: tuple[float, float]) -> list[str]:
        config = self.question.answered(settings)[0]
        study, tokens = config.study, work.batch * work.lengths.source
        objective, passes = study.objectives[0], steps * tokens / self.tokens
        pretraining, trials = seconds
        total = self.setup + pretraining + trials
        rates = ", ".join(f"{rate:g}" for rate in config.finetune.learning_rates)
        operations = f"{steps * step_operations(work):.1g}".replace("e+", "e")
        words = [
            f"The recipe for {study.time}: about {self.tokens:,.0f} tokens of text, {self.sizes.rows:,} labelled texts "
            f"of about {self.sizes.text_tokens:.0f} tokens; {self.kind}, {self.threads} threads.",
            f"Pretraining: {', '.join(study.objectives)}, {work.config.depth} layers of width {work.config.width}, "
            f"{steps:,} steps of {tokens:,} tokens, {passes:.1f} passes over the text, {operations} operations: "
            f"about {format_duration(pretraining)}.",
            f"Trials: budgets of {', '.join(f'{budget:,}' for budget in study.budgets)} labels; seeds: {study.seeds}; "
            f"learning rates: {rates}; about {format_duration(trials)}. "
            f"Reading, leaks and LSA: about {format_duration(self.setup)}. In all about {format_duration(total)}.",
        ]
        if total > 1.1 * self.seconds:
            words.append(f"{study.time} is too short for this study: it takes longer. Give more --time.")
        if study.seeds < PLANS[0][0] or len(study.budgets) < len(default_budgets(self.sizes.rows, self.sizes.classes)):
            words.append("With more time there would be more seeds, learning rates or budgets.")
        if passes >= MOSTLY_READ * most_passes(objective, work.config.dropout):
            return [*words, "The base reads the text as often as it can use: more time would not help it."]
        # Trials and reading take as long as before: what is added goes to the pretraining.
        low, high = worth(1 + self.seconds / max(1.0, pretraining))
        what = f"Twice the time ({format_duration(2 * self.seconds)}) may add {low:.1f} to {high:.1f} points"
        return [*words, f"{what} with 200 labels, by what was measured on two other texts (docs/recipes.md)."]
