"""Defaults that depend on something else: on the task, the model, the start or the device."""

import dataclasses
from typing import Any, TypeVar

from headstart.config.defaults import FINETUNE_EPOCHS, PRETRAIN_BATCH_TOKENS, TRANSLATION_BATCH_TOKENS
from headstart.config.model import ModelConfig, usual_pooling
from headstart.config.schema import Settings, fields_of
from headstart.config.training import Duration
from headstart.errors import UserError

S = TypeVar("S", bound=Settings)


def pretraining_learning_rate(model: ModelConfig) -> float:
    """A peak learning rate by width: 3e-3 at 128, 8e-4 at 768; a third of it with post-norm.

    At a third of it, the base of the embedded corpus learned its grammar but not its sentiment (docs/findings.md).
    """
    return 3e-3 * (128 / model.width) ** 0.75 / (3 if model.norm_place == "post" else 1)


def finetuning_learning_rate(width: int) -> float:
    """1e-3 at 128, 1e-4 at 768: the same for any start, so that two runs differ in their start alone.

    Which learning rate suits which start is a study's question: it tries several.
    """
    return 1e-3 * (128 / width) ** 1.25


def resolved(given: S, task: str, model: ModelConfig, device: str) -> S:
    """The settings with every default that depends on the task, the model or the device filled in."""
    values: dict[str, Any] = vars(given)
    filled: dict[str, Any] = {"length": min(values["length"] or model.context, model.context)}
    if not values["learning_rate"]:
        filled["learning_rate"] = _learning_rate(task, model)
    if task in ("pretraining", "translation") and not values["batch_tokens"]:
        of_task = PRETRAIN_BATCH_TOKENS if task == "pretraining" else TRANSLATION_BATCH_TOKENS
        filled["batch_tokens"] = of_task[device]
    for name in ("labels_seed", "initial_seed"):
        if values.get(name) == -1:
            filled[name] = values["seed"]
    if task not in ("pretraining", "translation"):
        filled["pooling"] = values["pooling"] or usual_pooling(model)
    durations = [f"--{name}" for name in fields_of(Duration) if values[name]]
    if len(durations) > 1:
        raise UserError(f"{' and '.join(durations)} at once", fix="give one of them", code="conflict")
    if not durations:
        filled["epochs"] = 1.0 if task == "pretraining" else FINETUNE_EPOCHS
    return dataclasses.replace(given, **filled)


def _learning_rate(task: str, model: ModelConfig) -> float:
    if task == "pretraining":
        return pretraining_learning_rate(model)
    if task == "translation":  # 1e-3 at 256, as the schedule of 2017 has it after 4,000 steps of warm-up
        return 1e-3 * (256 / model.width) ** 0.5
    return finetuning_learning_rate(model.width)
