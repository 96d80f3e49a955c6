"""The Python call that makes a run again, from its configuration alone.

Files are named without their place, and a start by its digest: nothing is told of the machine that it was made on.
"""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from headstart.decoding.beam import Beam
from headstart.model.presets import ModelConfig, preset
from headstart.objectives.masked import Corruption
from headstart.training.budget import Budget
from headstart.training.loading import LoadedRun
from headstart.training.loop import LoopConfig
from headstart.training.optimizer import OptimizerConfig
from headstart.training.run_directory import DataConfig, RunConfig
from headstart.training.translating import Search
from headstart.training.vocabularies import SOURCE_FILE, TARGET_FILE

START = "START"
_MODULES: dict[type, str] = {
    Beam: "headstart.decoding.beam",
    Budget: "headstart.training.budget",
    Corruption: "headstart.objectives.masked",
    LoopConfig: "headstart.training.loop",
    OptimizerConfig: "headstart.training.optimizer",
    Search: "headstart.training.translating",
}


def base_name(path: str) -> str:
    """The file's own name, without the directories that it lies in, whichever way they are parted."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def is_exact(facts: dict[str, Any]) -> bool:
    """Whether the same call gives the same weights: not where the run gave that up, with `--fast`."""
    return not str(facts.get("exact", "")).startswith("no")


def call_of(run: LoadedRun, facts: dict[str, Any], *, has_valid: bool = True) -> str:
    """The call; empty for a run that was not trained here. `facts` tell what it was computed on."""
    config, names = run.config, _files(run.config.data)
    if not names:
        return ""
    if config.objective == "translation":
        function, arguments = "train_translator", _translation(run)
    elif config.data.train:
        function, arguments = "finetune", _labelled(config)
    else:
        function, arguments = "pretrain", _language(config)
    arguments |= _shared(run)
    if function == "finetune" and not has_valid:
        arguments["valid_share"] = 0.0
    lines = [f"    {names!r},", *(f"    {key}={_source(value)}," for key, value in arguments.items())]
    imports = [f"from headstart import {function}", *_imports(arguments.values())]
    if facts:
        imports.append("from headstart.training.machine import choose")
        device = "cpu" if facts.get("device") == "cpu" else "cuda"
        threads = str(facts.get("threads", ""))
        lines.append(
            f"    machine=choose({device!r}, {str(facts.get('precision', 'auto'))!r}, "
            f"{int(threads) if threads.isdecimal() else None}{'' if is_exact(facts) else ', fast=True'}),"
        )
    return "\n".join([*sorted(set(imports)), "", f"{function}(", *lines, ")"])


# ---- arguments ----------------------------------------------------------------------------------------------


def _shared(run: LoadedRun) -> dict[str, Any]:
    """What every training takes."""
    config = run.config
    is_scratch = config.start == "scratch"
    usual = "transformer-tiny" if config.objective == "translation" else "tiny"
    arguments: dict[str, Any] = {
        "out": f"{run.path.resolve().name}-again",
        "budget": Budget(steps=config.loop.steps),
        "length": config.length,
        "optimizer": dataclasses.replace(config.optimizer, learning_rate=OptimizerConfig().learning_rate),
        "learning_rate": config.optimizer.learning_rate,
        "loop": dataclasses.replace(config.loop, steps=LoopConfig().steps),
    }
    if is_scratch:
        arguments |= {"preset_name": usual, "overrides": _overrides(config.model, preset(usual))}
    else:
        arguments |= {"start": START, "overrides": _overrides(config.model, None)}
    data = DataConfig()
    for field in ("encoding", "errors", "skip_bad_rows"):
        if (value := getattr(config.data, field)) != getattr(data, field):
            arguments[field] = value
    for field in ("valid", "test"):
        if value := getattr(config.data, field):
            arguments[field] = base_name(value)
    return arguments


def _labelled(config: RunConfig) -> dict[str, Any]:
    data = config.data
    return {
        "task": config.objective,
        **({"labels": data.labels} if data.labels else {}),
        "labels_seed": data.labels_seed,
        "initial_seed": config.initial_seed,
        **_tokenizer(config),
        **({"pooling": config.head.pooling} if config.head.pooling else {}),
        **({"freeze": config.freeze} if config.freeze != "nothing" else {}),
        "batch": config.batch,
        **({"r_drop": config.r_drop} if config.r_drop else {}),
        "text_column": data.text_column,
        "label_column": data.label_column,
    }


def _language(config: RunConfig) -> dict[str, Any]:
    return {
        "objective": config.objective,
        **_tokenizer(config),
        "batch_tokens": config.batch * config.length,
        "documents": config.data.documents,
        "text_column": config.data.text_column,
        **({"corruption": config.corruption} if config.objective != "causal" else {}),
        **({"shuffled": True} if config.data.shuffled else {}),
    }


def _translation(run: LoadedRun) -> dict[str, Any]:
    config, settings = run.config, run.config.translation
    assert settings is not None
    tokenizers = _tokenizer(config)
    if tokenizers and settings.target_tokenizer:
        tokenizers = {"tokenizer": SOURCE_FILE, "target_tokenizer": TARGET_FILE}
    return {
        **({"pairs": config.data.labels} if config.data.labels else {}),
        **({"start_into": settings.start_into} if settings.start_into else {}),
        **tokenizers,
        "batch_tokens": settings.batch_tokens,
        "smoothing": settings.smoothing,
        **({"r_drop": config.r_drop} if config.r_drop else {}),
        "search": Search(beam=Beam(beams=settings.beam, length_penalty=settings.length_penalty)),
    }


def _tokenizer(config: RunConfig) -> dict[str, Any]:
    """A start brings its own."""
    return {"tokenizer": "tokenizer.json"} if config.start == "scratch" else {}


def _files(data: DataConfig) -> str | list[str]:
    """What it was trained on: one file, or those of a corpus with their weights; nothing where it was imported."""
    if data.train:
        return base_name(data.train)
    names = [base_name(path) for path in data.corpus]
    if not data.weights:
        return names
    return [f"{name}={weight!r}" for name, weight in zip(names, data.weights, strict=True)]


def _overrides(config: ModelConfig, usual: ModelConfig | None) -> dict[str, Any]:
    """The fields that differ from the preset's; over a start, whose fields are not known here, all of them."""
    given = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {
        name: value
        for name, value in given.items()
        if name not in ("vocab", "target_vocab", "tokenizer")
        and (usual is None or value != getattr(usual, name))
    }


# ---- as Python ----------------------------------------------------------------------------------------------


def _source(value: Any) -> str:
    """A value as Python writes it; of settings only what is not as usual."""
    if type(value) not in _MODULES:
        return repr(value)
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    usual = type(value)()
    given = [f"{name}={_source(one)}" for name, one in fields.items() if one != getattr(usual, name)]
    return f"{type(value).__name__}({', '.join(given)})"


def _imports(values: Iterable[Any]) -> list[str]:
    found = []
    for value in values:
        if type(value) in _MODULES:
            found.append(f"from {_MODULES[type(value)]} import {type(value).__name__}")
            found += _imports(getattr(value, field.name) for field in dataclasses.fields(value))
    return found
