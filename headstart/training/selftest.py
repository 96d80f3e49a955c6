"""The promise, tried out: a training that is killed again and again ends in the same bytes as one that is not.

Every training is a child that is born with torch imported. The parent kills it with SIGKILL at some moment, or the
child kills itself at a place inside a save (`HEADSTART_FAULT`); then the same training is started again.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, get_args

from safetensors.torch import load_file

from headstart.errors import HeadstartError, RunFailed
from headstart.forking import without_current_directory
from headstart.randomness import stream
from headstart.text.demo import pairs, reviews
from headstart.training import checkpoint
from headstart.training.budget import Budget
from headstart.training.execute import Console
from headstart.training.finetune import finetune
from headstart.training.loop import LoopConfig, Progress
from headstart.training.machine import Machine
from headstart.training.pretrain import pretrain
from headstart.training.translation import train_translator

SelftestObjective = Literal["causal", "masked", "masked-nsp", "classification", "translation"]
OBJECTIVES: tuple[SelftestObjective, ...] = get_args(SelftestObjective)

REVIEWS = 120
SAVE_EVERY, EVALUATE_EVERY = 4, 12
STEPS_A_KILL = 8
SILENT_SECONDS = 300.0

# Where a kill strikes: the parent chooses the moment in the first two, the child dies by itself in the others.
STARTING, MOMENT, STEP, END = "starting", "moment", "step", "after:weights"
REPLACING = "between:renames"  # only the last checkpoint is replaced, when it has been evaluated
PLACES = (*checkpoint.PLACES, STEP)
_CHILDREN = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Trial:
    """The training that is tried: small, with dropout, micro-batches, a moving average and evaluations."""

    objective: SelftestObjective
    seed: int
    steps: int
    machine: Machine
    directory: Path

    @property
    def data(self) -> Path:
        files = {"classification": "rows.jsonl", "translation": "pairs.tsv"}
        return self.directory / files.get(self.objective, "corpus.txt")

    def write_data(self) -> None:
        if self.objective == "translation":
            lines = [f"{pair.english}\t{pair.french}" for pair in pairs(self.seed, "train", REVIEWS)]
        elif self.objective == "classification":
            made = reviews(self.seed, "train", REVIEWS)
            lines = [json.dumps({"text": review.french, "label": review.label}) for review in made]
        else:
            lines = [review.french for review in reviews(self.seed, "train", REVIEWS)]
        self.data.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def train(self, out: Path, console: Console) -> dict[str, Any]:
        loop = LoopConfig(
            seed=self.seed, accumulate=2, save_every=SAVE_EVERY, save_every_seconds=1e9, average="ema",
            evaluate_every=EVALUATE_EVERY,
        )  # fmt: skip
        shared: dict[str, Any] = {
            "out": out, "vocab": 400, "length": 32, "budget": Budget(steps=self.steps), "loop": loop,
            "overrides": {"width": 32, "ffn": 64, "heads": 2, "dropout": 0.1, "attention_dropout": 0.1},
            "machine": self.machine, "console": console,
        }  # fmt: skip
        if self.objective == "classification":
            return finetune(self.data, batch=8, **shared)
        if self.objective == "translation":
            return train_translator(self.data, batch_tokens=256, **shared)
        return pretrain([self.data], objective=self.objective, batch_tokens=256, **shared)


@dataclass(frozen=True)
class Blow:
    """A kill that is to come."""

    place: str
    step: int
    """About when; a child that goes on from a later step is killed as soon as it comes by the place."""

    share: float
    """How far into the start, or into the next two steps, a moment is."""

    def fault(self, start: int) -> str:
        """What the child that goes on from `start` has to be told to die at this place, about at this step."""
        if self.place in (STARTING, MOMENT):
            return ""
        stride = 1 if self.place == STEP else SAVE_EVERY
        comes_once = self.place in (REPLACING, END)
        return f"{self.place}@{1 if comes_once else max(1, (self.step - start) // stride)}"


@dataclass(frozen=True)
class Kill:
    """A kill that was: where, after which step, and the step of the checkpoint that is there to go on from."""

    number: int
    place: str
    after_step: int | None
    """None: it did not live to make one."""

    goes_on_from: int


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    steps: int
    kills: list[Kill]
    uninterrupted_sha256: str
    killed_sha256: str
    same_metrics: bool
    leftovers: list[str]
    """What was written aside and is still there; nothing should be."""

    seconds: float

    @property
    def passed(self) -> bool:
        return self.uninterrupted_sha256 == self.killed_sha256 and self.same_metrics and not self.leftovers


def selftest(
    kills: int,
    objective: SelftestObjective,
    seed: int,
    machine: Machine,
    directory: Path,
    on_kill: Callable[[Kill], None] = lambda kill: None,
) -> Outcome:
    """Train once in peace and once under so many kills, each in a subdirectory, and compare what is left."""
    started = time.monotonic()
    _start_nursery()
    trial = Trial(objective, seed, steps_for(kills), machine, directory)
    trial.write_data()
    peaceful, killed = directory / "uninterrupted", directory / "killed"
    pace = _train_in_peace(trial, peaceful)
    done: list[Kill] = []
    start = 0
    for blow in plan(kills, seed):
        after_step = _train_and_die(trial, killed, blow, start, pace)
        found, _ = checkpoint.latest(killed / "checkpoints")
        start = found.step if found else 0
        done.append(Kill(len(done) + 1, blow.place, after_step, start))
        on_kill(done[-1])
    _train_in_peace(trial, killed)
    digests = [
        checkpoint.weights_digest(load_file(run / "weights.safetensors")) for run in (peaceful, killed)
    ]
    metrics = [(run / "metrics.jsonl").read_bytes() for run in (peaceful, killed)]
    leftovers = [str(path.relative_to(killed)) for path in killed.rglob(".*")]
    seconds = time.monotonic() - started
    return Outcome(trial.steps, done, digests[0], digests[1], metrics[0] == metrics[1], leftovers, seconds)


def steps_for(kills: int) -> int:
    """Enough that the training cannot end before all kills but the last are done."""
    return STEPS_A_KILL * kills + 3 * EVALUATE_EVERY


def plan(kills: int, seed: int) -> list[Blow]:
    """Where each kill strikes: every stage of a save, the rest at any moment, shuffled; the last after all steps."""
    draws = stream(seed, "selftest")
    last = [REPLACING, END][max(0, 3 - kills) :]
    early = [place for place in PLACES if place != REPLACING]
    staged = min(max(len(early), kills // 2), max(kills - len(last) - 1, 1))
    places = [str(place) for _ in range(kills) for place in draws.permutation(early)][:staged]
    while len(places) < kills - len(last):
        places.append(STARTING if draws.random() < 0.2 else MOMENT)
    places = [*map(str, draws.permutation(places)), *last]
    steps = sorted(draws.integers(1, steps_for(kills) - 2 * EVALUATE_EVERY, size=kills))
    return [Blow(place, int(step), draws.random()) for place, step in zip(places, steps, strict=True)]


# ---- children ---------------------------------------------------------------------------------------------


def _start_nursery() -> None:
    """Start the process that all children are forked from, and wait until it has imported what they need."""
    _CHILDREN.set_forkserver_preload(["__main__", __name__])
    first = _CHILDREN.Process(target=int)
    with without_current_directory():
        first.start()
    first.join()


@dataclass(frozen=True)
class _Pace:
    """How quick the training is here, so that moments can be drawn within it."""

    start_seconds: float
    step_seconds: float


def _train_in_peace(trial: Trial, out: Path) -> _Pace:
    """Train to the end."""
    with _Child(trial, out) as child:
        times = [time.monotonic() for _ in child.steps()] or [child.born]
    child.check_end(0)
    return _Pace(times[0] - child.born, (times[-1] - times[0]) / max(1, len(times) - 1))


def _train_and_die(trial: Trial, out: Path, blow: Blow, start: int, pace: _Pace) -> int | None:
    """Train on from a step until the blow falls; returns the last step that was heard of."""
    last = None
    with _Child(trial, out, blow.fault(start)) as child:
        if blow.place == STARTING:
            child.wait(blow.share * pace.start_seconds)
            child.kill()
        for last in child.steps():
            if blow.place == MOMENT and last >= blow.step:
                time.sleep(blow.share * 2 * pace.step_seconds)
                child.kill()
    child.check_end(-signal.SIGKILL)
    return last


class _Child:
    """A process that trains; its steps are heard through a pipe. It does not outlive its `with`."""

    def __init__(self, trial: Trial, out: Path, fault: str = "") -> None:
        self._log = trial.directory / "log.txt"
        self._ear, self._mouth = _CHILDREN.Pipe(duplex=False)
        arguments = (trial, out, fault, self._mouth, self._log)
        self._process = _CHILDREN.Process(target=_work, args=arguments, daemon=True)

    def __enter__(self) -> "_Child":
        self.born = time.monotonic()
        self._process.start()
        self._mouth.close()  # so that silence is heard when the child, the only other holder, dies
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is not None:
            self.kill()
        self._process.join()
        self._ear.close()

    def wait(self, seconds: float) -> None:
        """So long, or until the first step."""
        self._ear.poll(seconds)

    def steps(self) -> Iterator[int]:
        """Each step as it is heard, until the child dies."""
        with contextlib.suppress(EOFError, OSError):
            while self._ear.poll(SILENT_SECONDS):
                yield int(self._ear.recv_bytes())
            raise RunFailed(
                f"the training said nothing for {SILENT_SECONDS:.0f} seconds", where=str(self._log)
            )

    def kill(self) -> None:
        self._process.kill()

    def check_end(self, code: int) -> None:
        """Refuse a child that ended in another way than it should have."""
        if self._process.exitcode != code:
            said = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
            raise RunFailed(
                f"the training ended with exit code {self._process.exitcode}, not {code}:\n{said[-2000:]}",
                where=str(self._log),
            )


def _work(trial: Trial, out: Path, fault: str, mouth: Connection, log: Path) -> None:
    """What a child does: the same training every time, whatever happened to the one before."""
    os.environ |= {"HEADSTART_CACHE": str(trial.directory / "cache"), "HEADSTART_FAULT": fault}

    def on_step(progress: Progress) -> None:
        mouth.send_bytes(str(progress.step).encode())

    with log.open("w", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        try:
            trial.train(out, Console(lambda line: print(line, file=file), on_step))
        except HeadstartError as error:
            print(error, file=file)
            raise SystemExit(error.exit_code) from None
        except Exception:
            traceback.print_exc(file=file)
            raise SystemExit(1) from None
