"""A list of tasks, whoever carries them out: which come next, which are tried again, and how each ended.

A task that fails leaves the others alone. One whose process was lost is tried again, since every task goes on where
it was; one that does not come further has failed. One that found no memory beside others is tried again, and from
then on there are fewer at a time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

ATTEMPTS = 3  # at one place
FURTHER = 0.01  # what a task has to come further, as a share of it, to be at another place


@dataclass(frozen=True)
class Task:
    """Something to do: `argument` goes to the work function, after the tasks that it waits for."""

    name: str
    argument: Any
    cost: float = 1.0
    after: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """How a task ended."""

    name: str
    error: str | None
    seconds: float


class Ending(NamedTuple):
    """What a worker says of a task at its end."""

    error: str | None = None
    is_crowded: bool = False
    """Whether the error is that there was no memory left."""


class Agenda:
    """What is to be done yet, and what came of the rest."""

    def __init__(
        self,
        tasks: Iterable[Task],
        jobs: int,
        *,
        on_share: Callable[[str, float], None] = lambda name, share: None,
        on_outcome: Callable[[Outcome], None] = lambda outcome: None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """At most `jobs` at once."""
        self._jobs = jobs
        self.outcomes: dict[str, Outcome] = {}
        self._waiting = list(tasks)
        self._running: dict[str, bool] = {}
        """Whether another one has run beside it."""

        self._on_share, self._on_outcome, self._tell = on_share, on_outcome, tell
        self._reached: dict[str, float] = {}
        self._lost: dict[str, tuple[float, int]] = {}
        """Where a task was when it last came further, and how often it was lost there."""

    def __bool__(self) -> bool:
        """Whether any task has still to be begun, or to end."""
        return bool(self._waiting or self._running)

    def next(self) -> list[Task]:
        """Tasks to begin now; what waited for a task that failed has failed with it."""
        for task in list(self._waiting):
            for name in task.after:
                if name in self.outcomes and self.outcomes[name].error:
                    self._waiting.remove(task)
                    self._end(task, f"{name} failed, on which it builds", 0.0)
                    break
        ready = [task for task in self._waiting if all(name in self.outcomes for name in task.after)]
        begun = ready[: max(0, self._jobs - len(self._running))]
        for task in begun:
            self._waiting.remove(task)
            self._running[task.name] = False
        if len(self._running) > 1:
            self._running = dict.fromkeys(self._running, True)
        return begun

    def heard(self, name: str, share: float) -> None:
        """A task is so far."""
        self._reached[name] = max(share, self._reached.get(name, 0.0))
        self._on_share(name, share)

    def ended(self, task: Task, ending: Ending, seconds: float) -> None:
        """A task came to its end."""
        had_company = self._running.pop(task.name)
        if not ending.is_crowded or not had_company:
            self._end(task, ending.error, seconds)
            return
        self._jobs = max(1, self._jobs - 1)
        self._waiting.append(task)
        self._tell(
            f"{task.name}: no memory was left for it beside others; it is tried again, {self._jobs} at a time"
        )

    def lost(self, task: Task, why: str, seconds: float) -> None:
        """A task lost its process."""
        del self._running[task.name]
        reached = self._reached.get(task.name, 0.0)
        place, count = self._lost.get(task.name, (reached, 0))
        if reached - place >= FURTHER:
            place, count = reached, 0
        self._lost[task.name] = place, count + 1
        if count + 1 == ATTEMPTS:
            self._end(task, f"its process ended {ATTEMPTS} times at one place ({why})", seconds)
            return
        self._waiting.insert(0, task)
        again = f"it goes on where it was (try {count + 2} of {ATTEMPTS})"
        self._tell(f"{task.name}: its process ended ({why}); {again}")

    def _end(self, task: Task, error: str | None, seconds: float) -> None:
        self.outcomes[task.name] = Outcome(task.name, error, seconds)
        self._on_outcome(self.outcomes[task.name])
