"""What a study would do, and how long it takes, before it starts: the recipe, and the tasks."""

import dataclasses
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.data.labelled import LabelledSet
from headstart.errors import Log, UserError
from headstart.hardware import available_cores
from headstart.machine import Device, choose
from headstart.planning import calibration
from headstart.planning.figures import format_duration
from headstart.study.arguments import Asked
from headstart.study.data import labelled_sets
from headstart.study.design import check, with_budgets
from headstart.study.given_data import GivenData
from headstart.study.recipes.costs import Sizes
from headstart.study.recipes.forecast import Forecast, RunGroup, forecast_of
from headstart.study.recipes.recipe import SIDE_BY_SIDE, TRIAL_SECONDS, Question, recipe_of
from headstart.study.settings import with_demo, with_start


@dataclass(frozen=True)
class StudyPlan:
    """The tasks of a study, and the sentences of its recipe, which have its time where it has a recipe."""

    sentences: list[str]
    forecast: Forecast
    has_recipe: bool


def plan_of(asked: Asked, sources: GivenData, device: Device, log: Log) -> StudyPlan:
    """Read the data and choose the recipe as the study would; nothing is trained, and nothing is left on the disk."""
    check(sources.config)
    with tempfile.TemporaryDirectory() as folder:
        directory, sentences = Path(folder), list[str]()
        config = with_start(sources.config)
        files, fields = sources.as_files(with_demo(config, directory), directory), asked.model
        sets = labelled_sets(files, log, sources.sets)
        has_recipe = bool(config.study.time and files.pretrain and not config.study.start)
        if has_recipe:
            question = Question(files, fields, Sizes.of(files, sets), device, asked.given)
            recipe = recipe_of(question, directory, log)
            sentences = recipe.sentences
            files, fields = question.answered(recipe.settings)
        study = with_budgets(files.study, len(sets["train"]), len(set(sets["train"].labels)))
        files = dataclasses.replace(files, study=study)
        return StudyPlan(sentences, _forecast(files, fields, sets, device), has_recipe)


def time_sentence(config: Any, fields: dict[str, Any], sets: Mapping[str, LabelledSet], device: Device) -> str:
    """How long a study without a recipe takes here; nothing where this machine's speed is not known."""
    try:
        seconds = _forecast(config, fields, sets, device).seconds
    except UserError:
        return ""
    return f"all tasks together take about {format_duration(seconds)} on this machine, reading and tokenising besides"


def _forecast(config: Any, fields: dict[str, Any], sets: Mapping[str, LabelledSet], device: Device) -> Forecast:
    kind: Any = choose(device).device.type
    target, prices = calibration.this_machine(kind, None, available_cores())
    planned = forecast_of(config, fields, sets, target, prices)
    runs = sum(part.count for part in planned.parts if part.steps)
    starting = RunGroup("starting the runs", runs, 0, TRIAL_SECONDS[kind] / SIDE_BY_SIDE[kind] * runs)
    return dataclasses.replace(planned, parts=[*planned.parts, starting])
