"""The clock of a study: what its tasks took, and the steps for which the rest of the time is enough.

A recipe foresees the time of all parts from a few measured steps. What needs no base runs first; what that has taken
corrects the forecast, and pretraining gets the time that is left. Its steps are then kept in recipe.json, so that a
study that is resumed trains the same ones.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

from headstart.config.training import seconds_in
from headstart.errors import IntegrityError, Log
from headstart.planning.figures import format_duration
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_write
from headstart.study.data import StudyData, with_steps
from headstart.study.execution.scheduler import TaskResult
from headstart.study.recipes.recipe import RECIPE, Recipe, steps_in

MOST_SHARE = 0.99  # before all is done


class Times:
    """timing.json: how long each task took, over all calls."""

    def __init__(self, file: Path, preparation: float, facts: dict[str, Any], log: Log = lambda line: None) -> None:
        """`preparation` is what came before the first task of the first call."""
        self.file, self._since = file, time.monotonic()
        self.values: dict[str, Any] = {"seconds": 0.0, "preparation": preparation, "pretraining": {}, "trials": {}}
        if file.exists():
            try:
                self.values |= checksummed_json.read(file, "")
            except IntegrityError as error:  # only times are lost
                log(f"{file}: {error.what}; the times of the earlier calls are lost")
        self.values |= facts

    def add(self, result: TaskResult) -> None:
        kind = "trials" if "-b" in result.name else "pretraining"
        self.values[kind][result.name] = self.values[kind].get(result.name, 0.0) + round(result.seconds, 2)
        now = time.monotonic()
        self.values["seconds"] = round(self.values["seconds"] + now - self._since, 2)
        self._since = now
        atomic_write(self.file, checksummed_json.dump(self.values, indent=1))

    @property
    def spent(self) -> float:
        """Seconds of all calls, with what came before the first task."""
        return float(self.values["preparation"] + self.values["seconds"] + time.monotonic() - self._since)

    def seconds_of(self, arm: str) -> float:
        """The part of the time that the trials of an arm took; those side by side share it."""
        trials = self.values["trials"]
        own = sum(seconds for name, seconds in trials.items() if name.startswith(f"{arm}-b"))
        return float(self.values["seconds"] * own / sum(trials.values())) if own else 0.0


def share_done(by_operations: float, spent: float, foreseen: float) -> float:
    """The share of a study that is done: of the time that was foreseen, as far as that was right, or of operations."""
    return min(spent / foreseen, MOST_SHARE) if by_operations < 1 and spent < foreseen else by_operations


def is_timed(directory: Path) -> bool:
    """Whether the steps of pretraining are still to be corrected."""
    file = directory / RECIPE
    return file.exists() and Recipe.read(file).forecast is not None


def retimed(data: StudyData, times: Times, log: Log) -> tuple[StudyData, Recipe]:
    """With the steps for which the time is enough, now that what needs no base is done; and the recipe that says so."""
    recipe, study = Recipe.read(data.directory / RECIPE), data.config.study
    forecast, whole = recipe.forecast or {}, seconds_in(study.time)
    taken = sum(times.seconds_of(arm) for arm in ("scratch", "scratch-causal", "scratch-masked"))
    factor = taken / forecast["from_scratch"] if taken and forecast["from_scratch"] else 1.0
    spent, rest = times.spent, factor * forecast["from_base"]
    steps = steps_in(whole, spent + rest, forecast)
    pretraining = forecast["bases"] * (steps * forecast["phases"] * forecast["step"] + forecast["evaluating"])
    in_all = spent + pretraining + rest
    said = (
        f"{format_duration(spent)} are over, and what is left to fine-tune takes about {format_duration(rest)}: "
        f"pretraining gets {steps * forecast['phases']:,} steps, about {format_duration(pretraining)}. "
        f"In all about {format_duration(in_all)}, where {study.time} was the aim."
    )
    log(said)
    settings = {**recipe.settings, "pretrain": {**recipe.settings["pretrain"], "steps": steps}}
    phases = [dataclasses.replace(phase, steps=steps) for phase in data.config.pretrain]
    data = dataclasses.replace(data, config=dataclasses.replace(data.config, pretrain=phases))
    return with_steps(data, [steps] * len(phases)), Recipe(settings, [*recipe.sentences, said], seconds=in_all)
