"""How many steps: given, or so many passes over the data, or what fits into some minutes on this machine."""

import copy
import dataclasses
import math
import time

from headstart.errors import UserError
from headstart.objectives.objective import Objective
from headstart.training.loop import Training, one_update
from headstart.training.step import read

TRIAL_SECONDS = 3.0
TRIAL_STEPS = 20
WARM_STEPS = 2  # the first are slow: memory, caches, kernels, a recording


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """One of the three, or none for the default of the verb."""

    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        given = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        if len(given) > 1:
            raise UserError(f"{' and '.join('--' + key for key in given)} at once", fix="give one of them")
        for key, value in given.items():
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{key} is {value}", fix="give a number over 0")

    def steps_for(self, objective: Objective, seed: int, default_epochs: float) -> int:
        """The steps, minutes aside."""
        if self.steps is not None:
            return self.steps
        return objective.steps_in(self.epochs if self.epochs is not None else default_epochs, seed)


def steps_in_minutes(training: Training, minutes: float) -> int:
    """Time some steps on a copy of the model, which is then thrown away, and count how many fit."""
    trial = dataclasses.replace(training, model=copy.deepcopy(training.model))
    update = one_update(trial)
    for step in range(WARM_STEPS):
        last = update(step)
    read([last])
    started, count, ranks = time.monotonic(), 0, training.machine.ranks
    while count < TRIAL_STEPS and ranks.agree(time.monotonic() - started >= TRIAL_SECONDS) == (False,):
        last = update(WARM_STEPS + count)
        count += 1
    read([last])
    seconds = (time.monotonic() - started) / count
    (steps,) = ranks.agree(max(1, int(60 * minutes / seconds)))
    training.tell(f"a step takes {seconds:.3f} s here: {minutes:g} minutes are {steps:,} steps")
    return steps
