"""Steps for their time and memory alone: those of a run, or of a training on random tokens, without any data."""

import copy
import functools
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from headstart.config.training import LoopConfig, OptimizerConfig, seconds_in
from headstart.machine import Machine
from headstart.model.heads import IGNORED
from headstart.model.model import Model, build
from headstart.objectives.batches import Batch, Tensors, with_cu_seqlens
from headstart.objectives.classification import Classification
from headstart.objectives.objective import Loss, Objective
from headstart.objectives.pretraining import Causal, Masked, MaskedNextSentence
from headstart.objectives.translation import Translation
from headstart.planning.workload import Workload
from headstart.randomness import stream
from headstart.tokenizers.templates import Framed
from headstart.training.compiling import accelerated
from headstart.training.loop import Step, Training
from headstart.training.optimizers.optimizer import build_optimizers, learning_rate_factor, set_learning_rate
from headstart.training.parallel import distribute
from headstart.training.step_log import StepResult

DOCUMENT = 100  # tokens of a made-up document in a calibration's blocks
TIMED_SECONDS, TIMED_STEPS = 3.0, 20
WARM_UP_STEPS = 2  # the first are slow: memory, caches, kernels, a graph
DIFFERENT = 4  # batches on a GPU, then they repeat: making them must take no time beside the steps


class _Random(Objective):
    """Batches of random tokens in the form of an objective's, with that objective's loss."""

    def __init__(self, work: Workload) -> None:
        self.work, self.head = work, work.head
        self._objective = _OBJECTIVES[work.head.kind](work)
        self.uses_target_positions = self._objective.uses_target_positions
        self._made = functools.cache(self._batch)

    def batch_at(self, seed: int, step: int) -> Batch:
        # On a CPU new tokens are new memory: the optimizer keeps state for the rows it has seen.
        return self._batch(seed, step) if self.work.device == "cpu" else self._made(seed, step % DIFFERENT)

    def _batch(self, seed: int, number: int) -> Batch:
        made, draws = self.work, stream(seed, "rehearsal", number)
        shape = (made.batch, made.lengths.source)
        tokens = draws.integers(0, made.config.vocab, shape)
        batch: Batch = {"tokens": tokens}
        if made.reading == "padded":  # one token of padding: without any, another kernel reads the texts
            batch["present"] = np.ones(shape, bool)
            batch["present"][-1, 1:][-1:] = False
        if made.reading == "packed":
            # Of many lengths, as real ones are: a CPU reads them one by one, with kernels for each length.
            begins = draws.random(shape) < (1 / made.document if made.document else 0.0)
            batch["documents"] = np.cumsum(begins, axis=1)
        return {**batch, **self._targets(tokens, draws)}

    def _targets(self, tokens: np.ndarray, draws: np.random.Generator) -> Batch:
        kind, made, texts = self.head.kind, self.work, len(tokens)
        if kind == "lm":
            return {"targets": np.roll(tokens, -1, axis=1)}
        if kind == "translation":
            written = draws.integers(0, made.config.output_vocab, (texts, made.lengths.target))
            return {"written": written, "targets": np.roll(written, -1, axis=1)}
        segments: Batch = {"segments": np.zeros(tokens.shape, np.int64)}
        if kind in ("masked", "masked-nsp"):
            hidden = np.arange(tokens.shape[1]) < max(1, round(made.masked_share * tokens.shape[1]))
            masked: Batch = {"targets": np.where(hidden, tokens, IGNORED)}
            if kind == "masked":
                return masked
            follows, weight = np.zeros(texts, np.int64), np.ones(texts, np.float32)
            return {**masked, "follows": follows, "pair_weight": weight, **segments}
        wanted: Batch = {
            "classification": np.zeros(texts, np.int64),
            "multilabel": np.zeros((texts, self.head.classes), np.int64),
            "regression": np.zeros((texts, self.head.classes), np.float32),
        }
        return {"targets": wanted[kind], **segments}

    def pad_to_static_shape(self, batch: Batch) -> Batch:
        """All batches have one shape already."""
        return with_cu_seqlens(batch)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        return self._objective.loss(model, batch)


# The objectives themselves, without data: their batches are made up.
_NOTHING: Any = SimpleNamespace(length=0)
_TEXT = Framed(np.zeros(2, np.int64), np.zeros(2, np.int64), False)

_OBJECTIVES: dict[str, Callable[[Workload], Objective]] = {
    "lm": lambda work: Causal(_NOTHING, work.batch),
    "masked": lambda work: Masked(_NOTHING, work.batch, _NOTHING),
    "masked-nsp": lambda work: MaskedNextSentence(_NOTHING, work.batch, _NOTHING, 0),
    "translation": lambda work: Translation([_TEXT], [_TEXT], 64, 0, 0, smoothing=0.1),
    **dict.fromkeys(
        ("classification", "multilabel", "regression"),
        lambda work: Classification([_TEXT], np.zeros(1, np.int64), work.head, work.batch, 0),
    ),
}


def rehearsal(work: Workload, machine: Machine) -> Training:
    """A training of this workload."""
    model = build(work.config, work.head)
    if work.freeze == "base":
        model.base.requires_grad_(False)
    optimizer = OptimizerConfig(optimizer=work.optimizer, learning_rate=1e-3)
    loop = LoopConfig(accumulate=work.accumulate)
    return Training(Path(), model, _Random(work), None, optimizer, loop, machine, log=lambda line: None)


# ---- steps that are timed -----------------------------------------------------------------------------------


def one_update(training: Training) -> Callable[[int], StepResult]:
    """A function that takes one step and keeps nothing: for timing. Its result is there once it is read."""
    model, machine = training.model, training.machine
    losses = distribute(model, machine, training.is_sharded)
    optimizers = build_optimizers(model, model.config, training.optimizer, machine.ranks.world)
    stack = ExitStack()  # the function below keeps it, and so the model stays compiled
    copies = stack.enter_context(accelerated(model, training.objective, machine, training.is_compiled))
    take = Step(training, losses, optimizers, copies)

    def update(step: int, stack: ExitStack = stack) -> StepResult:
        set_learning_rate(optimizers, learning_rate_factor(training.loop, step, step + 2))
        return take(step, training.loop.accumulate)[1]

    return update


def steps_in_time(training: Training, duration: str) -> int:
    """How many steps fit: some are timed on a copy of the model, which is then thrown away."""
    update = one_update(replace(training, model=copy.deepcopy(training.model)))
    for step in range(WARM_UP_STEPS):
        last = update(step)
    last.read()
    started, count, ranks = time.monotonic(), 0, training.machine.ranks
    while count < TIMED_STEPS and ranks.agree(time.monotonic() - started >= TIMED_SECONDS) == (False,):
        last = update(WARM_UP_STEPS + count)
        count += 1
    last.read()
    seconds = (time.monotonic() - started) / count
    (steps,) = ranks.agree(max(1, int(seconds_in(duration) / seconds)))
    training.log(f"a step takes {seconds:.3f} s here: {duration} are {steps:,} steps")
    return steps
