"""A training on random tokens: what a step takes, in time and memory, without any data. For calibration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headstart.model.heads import IGNORED
from headstart.model.model import Model, build
from headstart.objectives.block_reading import with_offsets
from headstart.objectives.causal import Causal
from headstart.objectives.classification import Classification
from headstart.objectives.masked import Masked
from headstart.objectives.next_sentence import MaskedNextSentence
from headstart.objectives.objective import Batch, Loss, Objective, Tensors
from headstart.objectives.translation import Translation
from headstart.plan.operations import MASKED_SHARE
from headstart.plan.workload import Workload
from headstart.randomness import stream
from headstart.text.frames import Framed
from headstart.training.loop import LoopConfig, Training
from headstart.training.machine import Machine
from headstart.training.optimizer import OptimizerConfig

DOCUMENT = 100  # tokens of a made-up document in a packed block
DIFFERENT = 4  # batches on a GPU; then they come again, so that making them takes no time beside the steps


class _Random:
    """Batches of random tokens in the form that an objective makes them; its own loss is what is computed."""

    def __init__(self, work: Workload) -> None:
        self.work, self.head = work, work.head
        self._objective: Any = _GOALS[work.head.kind](work)
        self.picks_places = getattr(self._objective, "picks_places", True)
        self._made: dict[tuple[int, int], Batch] = {}

    def batch_at(self, seed: int, step: int) -> Batch:
        # On a CPU new tokens are new memory: the optimizer keeps the rows that were touched.
        if self.work.device == "cpu":
            return self._batch(seed, step)
        key = (seed, step % DIFFERENT)
        if key not in self._made:
            self._made[key] = self._batch(*key)
        return self._made[key]

    def _batch(self, seed: int, number: int) -> Batch:
        made, draws = self.work, stream(seed, "rehearsal", number)
        shape = (made.batch, made.lengths.source)
        tokens = draws.integers(0, made.config.vocab, shape)
        batch: Batch = {"tokens": tokens}
        if made.reading == "padded":  # one token of padding: without any, texts are read otherwise
            batch["present"] = np.ones(shape, bool)
            batch["present"][-1, 1:][-1:] = False
        if made.reading == "packed":
            batch["documents"] = np.tile(np.arange(shape[1]) // DOCUMENT, (shape[0], 1))
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
            hidden = np.arange(tokens.shape[1]) < max(1, round(MASKED_SHARE * tokens.shape[1]))
            pairs: Batch = {
                "follows": np.zeros(texts, np.int64),
                "pair_weight": np.ones(texts, np.float32),
                **segments,
            }
            return {"targets": np.where(hidden, tokens, IGNORED), **(pairs if kind == "masked-nsp" else {})}
        wanted: Batch = {
            "classification": np.zeros(texts, np.int64),
            "multilabel": np.zeros((texts, self.head.classes), np.int64),
            "regression": np.zeros((texts, self.head.classes), np.float32),
        }
        return {"targets": wanted[kind], **segments}

    def filled(self, batch: Batch) -> Batch:
        """All batches are of one shape already; documents side by side have their offsets, as in pretraining."""
        return with_offsets(batch)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        loss: Loss = self._objective.loss(model, batch)
        return loss


def _labelled(work: Workload) -> Classification:
    return Classification([_TEXT], np.zeros(1, np.int64), work.head, work.batch, 0)


# The objectives themselves, over nothing: their batches are made up, their losses are their own.
_NOTHING: Any = None
_TEXT = Framed(np.zeros(2, np.int64), np.zeros(2, np.int64), False)
_GOALS: dict[str, Callable[[Workload], Any]] = {
    "lm": lambda work: Causal(_NOTHING, work.batch),
    "masked": lambda work: Masked(_NOTHING, work.batch, _NOTHING),
    "masked-nsp": lambda work: MaskedNextSentence(_NOTHING, work.batch, _NOTHING, 0),
    "translation": lambda work: Translation([_TEXT], [_TEXT], 64, 0, 0, smoothing=0.1),
    "classification": _labelled,
    "multilabel": _labelled,
    "regression": _labelled,
}
REHEARSED = tuple(_GOALS)


def rehearsal(work: Workload, machine: Machine) -> Training:
    """A training of this workload; nothing of it is kept."""
    model = build(work.config, work.head)
    if work.freeze == "base":
        model.base.requires_grad_(False)
    objective: Objective = _Random(work)  # type: ignore[assignment]
    return Training(
        directory=Path(),
        model=model,
        objective=objective,
        valid=None,
        optimizer=OptimizerConfig(optimizer=work.optimizer),
        loop=LoopConfig(accumulate=work.accumulate),
        machine=machine,
        tell=lambda line: None,
    )


def machine_for(work: Workload, threads: int) -> Machine:
    """Where it is rehearsed."""
    return Machine(torch.device(work.device), work.precision, threads)
