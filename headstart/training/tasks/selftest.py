"""The selftest: a training that is killed again and again must end with bit-identical weights.

Every training is a child of a forkserver that has imported torch. The parent kills it with SIGKILL at some moment, or
the child kills itself at a point inside a save (`HEADSTART_FAULT`); then the same training is started again.
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
from typing import Any, Literal

from safetensors.torch import load_file

from headstart.config.training import LoopConfig
from headstart.demo.corpus import pairs, reviews
from headstart.errors import HeadstartError, RunFailed
from headstart.machine import Machine
from headstart.randomness import stream
from headstart.runs import checkpoint
from headstart.runs.directory import RunResult
from headstart.storage.processes import without_current_directory
from headstart.training.fit import Console
from headstart.training.step_log import Progress
from headstart.training.tasks.finetune import finetune, train_translator
from headstart.training.tasks.pretrain import pretrain

SelftestObjective = Literal["causal", "masked", "masked-nsp", "classification", "translation"]
EXAMPLES = 120
SAVE_EVERY, EVALUATE_EVERY, STEPS_PER_KILL = 4, 12, 8
SILENT_SECONDS = 300.0

# Where a fault strikes: in the first two the parent chooses the moment, in the others the child kills itself.
STARTING, MOMENT, STEP, END = "starting", "moment", "step", "after:weights"
REPLACING = "between:renames"  # only the last checkpoint is replaced, after its evaluation
POINTS = (*checkpoint.POINTS, STEP)
_FORKSERVER = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class SmallTraining:
    """The training that is killed: small, with dropout, micro-batches, a moving average and evaluations."""

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
        made = reviews(self.seed, "train", EXAMPLES)
        lines = [review.french for review in made]
        if self.objective == "translation":
            lines = [f"{pair.english}\t{pair.french}" for pair in pairs(self.seed, "train", EXAMPLES)]
        elif self.objective == "classification":
            lines = [json.dumps({"text": review.french, "label": review.label}) for review in made]
        self.data.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def train(self, out: Path, console: Console) -> RunResult:
        loop = LoopConfig(
            seed=self.seed, accumulate=2, save_every=SAVE_EVERY, save_every_seconds=1e9, average="ema",
            evaluate_every=EVALUATE_EVERY,
        )  # fmt: skip
        shared: dict[str, Any] = {
            "out": out, "vocab": 400, "length": 32, "steps": self.steps, "loop": loop,
            "model": {"width": 32, "ffn": 64, "heads": 2, "dropout": 0.1, "attention_dropout": 0.1},
            "machine": self.machine, "console": console,
        }  # fmt: skip
        if self.objective == "classification":
            return finetune(self.data, batch=8, **shared)
        if self.objective == "translation":
            return train_translator(self.data, batch_tokens=256, **shared)
        return pretrain([self.data], objective=self.objective, batch_tokens=256, **shared)


@dataclass(frozen=True)
class Fault:
    """A kill that is planned."""

    point: str
    step: int  # about when; a child that resumes from a later step is killed as soon as it reaches the point
    share: float  # how far into the start-up, or into the next two steps, a moment is

    def variable(self, start: int) -> str:
        """The HEADSTART_FAULT of a child that resumes from step `start`."""
        if self.point in (STARTING, MOMENT):
            return ""
        stride = 1 if self.point == STEP else SAVE_EVERY
        comes_once = self.point in (REPLACING, END)
        return f"{self.point}@{1 if comes_once else max(1, (self.step - start) // stride)}"


@dataclass(frozen=True)
class Kill:
    """A kill that happened: where, after which step (None: before any), and the checkpoint that is left."""

    number: int
    point: str
    after_step: int | None
    resumes_from: int


@dataclass(frozen=True)
class SelftestResult:
    """The two trainings compared."""

    steps: int
    kills: list[Kill]
    uninterrupted_sha256: str
    killed_sha256: str
    same_metrics: bool
    leftovers: list[str]  # temporary files that are still there; there should be none
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
) -> SelftestResult:
    """Train once uninterrupted and once under so many kills, each in a subdirectory, and compare the results."""
    started = time.monotonic()
    _start_forkserver()
    training = SmallTraining(objective, seed, steps_for(kills), machine, directory)
    training.write_data()
    runs = directory / "uninterrupted", directory / "killed"
    speed = _train(training, runs[0])
    done: list[Kill] = []
    start = 0
    for fault in plan(kills, seed):
        after_step = _train_and_kill(training, runs[1], fault, start, speed)
        last, _ = checkpoint.latest(runs[1] / "checkpoints")
        start = last.step if last else 0
        done.append(Kill(len(done) + 1, fault.point, after_step, start))
        on_kill(done[-1])
    _train(training, runs[1])
    intact, killed = (checkpoint.weights_digest(load_file(run / "weights.safetensors")) for run in runs)
    metrics = [(run / "metrics.jsonl").read_bytes() for run in runs]
    leftovers = [str(path.relative_to(runs[1])) for path in runs[1].rglob(".*")]
    is_same, seconds = metrics[0] == metrics[1], time.monotonic() - started
    return SelftestResult(training.steps, done, intact, killed, is_same, leftovers, seconds)


def steps_for(kills: int) -> int:
    """Enough that the training cannot end before all kills but the last are done."""
    return STEPS_PER_KILL * kills + 3 * EVALUATE_EVERY


def plan(kills: int, seed: int) -> list[Fault]:
    """Faults at every stage of a save and at random moments, shuffled; the last ones after all steps."""
    draws = stream(seed, "selftest")
    last = [REPLACING, END][max(0, 3 - kills) :]
    early = [point for point in POINTS if point != REPLACING]
    staged = min(max(len(early), kills // 2), max(kills - len(last) - 1, 1))
    points = [str(point) for _ in range(kills) for point in draws.permutation(early)][:staged]
    while len(points) < kills - len(last):
        points.append(STARTING if draws.random() < 0.2 else MOMENT)
    points = [*map(str, draws.permutation(points)), *last]
    steps = sorted(draws.integers(1, steps_for(kills) - 2 * EVALUATE_EVERY, size=kills))
    return [Fault(point, int(step), draws.random()) for point, step in zip(points, steps, strict=True)]


# ---- children ---------------------------------------------------------------------------------------------


def _start_forkserver() -> None:
    """Start the process that all children are forked from, and wait until it has imported what they need."""
    _FORKSERVER.set_forkserver_preload(["__main__", __name__])
    first = _FORKSERVER.Process(target=int)
    with without_current_directory():
        first.start()
    first.join()


def _train(training: SmallTraining, out: Path) -> tuple[float, float]:
    """Train to the end; returns the seconds of its start and of a step, so that moments can be drawn within them."""
    with _Child(training, out) as child:
        times = [time.monotonic() for _ in child.steps()] or [child.started]
    child.check_exit(0)
    return times[0] - child.started, (times[-1] - times[0]) / max(1, len(times) - 1)


def _train_and_kill(
    training: SmallTraining, out: Path, fault: Fault, start: int, speed: tuple[float, float]
) -> int | None:
    """Train on from a step until the fault strikes; returns the last step that was reported."""
    last, (start_seconds, step_seconds) = None, speed
    with _Child(training, out, fault.variable(start)) as child:
        if fault.point == STARTING:
            child.reader.poll(fault.share * start_seconds)  # so long, or until the first step
            child.process.kill()
        for last in child.steps():
            if fault.point == MOMENT and last >= fault.step:
                time.sleep(fault.share * 2 * step_seconds)
                child.process.kill()
    child.check_exit(-signal.SIGKILL)
    return last


class _Child:
    """A process that trains and reports its steps through a pipe. It does not outlive its `with`."""

    def __init__(self, training: SmallTraining, out: Path, fault: str = "") -> None:
        self._log = training.directory / "log.txt"
        self.reader, self._writer = _FORKSERVER.Pipe(duplex=False)
        arguments = (training, out, fault, self._writer, self._log)
        self.process = _FORKSERVER.Process(target=_work, args=arguments, daemon=True)

    def __enter__(self) -> "_Child":
        self.started = time.monotonic()
        self.process.start()
        self._writer.close()  # so that the pipe ends when the child, the only other holder, dies
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is not None:
            self.process.kill()
        self.process.join()
        self.reader.close()

    def steps(self) -> Iterator[int]:
        """Each step as it is reported, until the child ends."""
        with contextlib.suppress(EOFError, OSError):
            while self.reader.poll(SILENT_SECONDS):
                yield int(self.reader.recv_bytes())
            raise RunFailed(f"no step for {SILENT_SECONDS:.0f} seconds", where=self._log)

    def check_exit(self, code: int) -> None:
        """Raise if the child ended with another exit code."""
        if self.process.exitcode != code:
            text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
            what = f"the training ended with exit code {self.process.exitcode}, not {code}:"
            raise RunFailed(f"{what}\n{text[-2000:]}", where=self._log)


def _work(training: SmallTraining, out: Path, fault: str, writer: Connection, log: Path) -> None:
    """What every child does: the same training, no matter what happened to the child before."""
    os.environ |= {"HEADSTART_CACHE": str(training.directory / "cache"), "HEADSTART_FAULT": fault}

    def on_step(progress: Progress) -> None:
        writer.send_bytes(str(progress.step).encode())

    with log.open("w", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        try:
            training.train(out, Console(lambda line: print(line, file=file), on_step))
        except HeadstartError as error:
            print(error, file=file)
            raise SystemExit(error.exit_code) from None
        except Exception:
            traceback.print_exc(file=file)
            raise SystemExit(1) from None
