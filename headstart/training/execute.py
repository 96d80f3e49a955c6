"""Carry a run out in its directory: from configuration, model and data to weights and a result."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headstart.errors import TryAgain
from headstart.model.model import Model
from headstart.objectives.objective import Objective
from headstart.text.durable import rename
from headstart.text.tokenizer import Tokenizer
from headstart.training.budget import steps_in_minutes
from headstart.training.checkpoint import (
    clean,
    disk_full_is_try_again,
    fault,
    weights_digest,
    write_tensors,
)
from headstart.training.compiling import pays
from headstart.training.evaluate import Scores, evaluate
from headstart.training.loop import Progress, Training, train
from headstart.training.machine import Machine
from headstart.training.memory import memory_full_is_try_again
from headstart.training.metrics import MetricsFile
from headstart.training.run_directory import RunConfig, RunDirectory
from headstart.training.tracking import EventFile, Tracker
from headstart.training.vocabularies import Vocabularies


@dataclasses.dataclass(frozen=True)
class Console:
    """Where a run talks to: lines for a person, and every step for a progress bar."""

    tell: Callable[[str], None] = lambda line: None
    on_step: Callable[[Progress], None] = lambda progress: None
    track: Tracker | None = None
    """Where the metrics go besides metrics.jsonl."""


def execute(
    run: RunDirectory,
    config: RunConfig,
    tokenizer: Tokenizer | Vocabularies,
    model: Model,
    objective: Objective,
    valid: Objective | None,
    machine: Machine,
    console: Console,
    *,
    override: bool = False,
    finish: Callable[[Model, Scores | None], dict[str, Any]] = lambda model, scores: {},
) -> dict[str, Any]:
    """Train to the end and write the result; the caller holds the lock. A finished run is only read."""
    if not override:
        run.check_tokenizer(tokenizer)
    run.check_same(config, override)
    config = _with_known_steps(run, config)
    clean(run.path)
    result = run.read_result()
    if result is not None and result["steps"] >= config.loop.steps:
        if _has_weights(run, result):
            console.tell(f"{run.path}: finished at step {result['step']:,}; nothing to do")
            _track_finished(run, console)
            return result
        console.tell(f"{run.weights_file}: not what was written; made again from the last checkpoint")
    _check_disk(run, model, config)
    with disk_full_is_try_again(run.path, len(str(tokenizer.spec))):
        tokenizer.save(run.path)
    machine.prepare()
    events = EventFile(run.path, console.tell) if console.track else None
    is_compiled = pays(objective, config.loop.steps, machine)
    if is_compiled:
        console.tell("the blocks are compiled first, which takes about a minute")
    training = Training(
        directory=run.path,
        model=model,
        objective=objective,
        valid=valid,
        optimizer=config.optimizer,
        loop=config.loop,
        machine=machine,
        facts={
            "machine": {**machine.facts(), **({"compiled": "yes"} if is_compiled else {})},
            "data": config.data.fingerprint,
            "tokenizer": tokenizer.fingerprint,
        },
        tell=console.tell,
        on_step=console.on_step,
        events=events,
        is_compiled=is_compiled,
    )
    if config.minutes and not run.config_file.exists():
        steps = steps_in_minutes(training, config.minutes)
        config = dataclasses.replace(config, loop=dataclasses.replace(config.loop, steps=steps))
        training.loop = config.loop
    run.write_config(config)
    run.result_file.unlink(missing_ok=True)
    with memory_full_is_try_again(config), contextlib.closing(events) if events else contextlib.nullcontext():
        state, scores = train(training)
    # The weights are the best ones now, or they were evaluated by a process that ended before this one.
    if valid is not None and (scores is None or config.loop.patience):
        scores = evaluate(model, valid, machine)
    weights = {name: p.detach().cpu() for name, p in model.named_parameters()}
    _write_weights(run, weights)
    result = {
        "objective": config.objective,
        "step": state.step,
        "steps": state.steps,
        "weights_sha256": weights_digest(weights),
        "parameters": sum(tensor.numel() for tensor in weights.values()),
        "skipped": state.skipped,
        "stopped_early": state.stopped_early,
        "best_step": state.best_step,
        "valid": scores.values if scores else None,
        **finish(model, scores),
    }
    fault("before:result")
    return run.write_result(result)


def _track_finished(run: RunDirectory, console: Console) -> None:
    """The metrics of a run that was finished without the tracker."""
    if console.track:
        with contextlib.closing(EventFile(run.path, console.tell)) as events:
            events.begin(MetricsFile(run.path / "metrics.jsonl", console.tell).read)


def _write_weights(run: RunDirectory, weights: Mapping[str, Tensor]) -> None:
    aside = run.path / f".tmp-weights-{os.getpid()}"
    needed = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    try:
        with disk_full_is_try_again(run.path, needed):
            write_tensors(aside, weights)
            fault("after:weights")
            rename(aside, run.weights_file)
    finally:
        aside.unlink(missing_ok=True)


def _has_weights(run: RunDirectory, result: Mapping[str, Any]) -> bool:
    """Whether a finished run has the weights that its result tells of."""
    try:
        return weights_digest(load_file(run.weights_file)) == result["weights_sha256"]
    except (SafetensorError, OSError):
        return False


def _with_known_steps(run: RunDirectory, config: RunConfig) -> RunConfig:
    """The steps that were measured when a run in minutes began."""
    if not config.minutes or not run.config_file.exists():
        return config
    known = run.read_config().loop.steps
    return dataclasses.replace(config, loop=dataclasses.replace(config.loop, steps=known))


def _check_disk(run: RunDirectory, model: Model, config: RunConfig) -> None:
    """Refuse before the first step what could not be saved later."""
    copies = 3 + (config.loop.average != "none")  # weights, two memories of AdamW, perhaps an average
    written = len(list((run.path / "checkpoints").glob("step-*")))
    checkpoints = max(1, config.loop.keep + 1 - written)
    needed = 4 * _numbers(model) * (copies * checkpoints + 1)  # at last the weights alone
    free = shutil.disk_usage(run.path).free
    if free < needed:
        raise TryAgain(
            f"{needed:,} bytes are needed for {config.loop.keep} checkpoints, one being written and the "
            f"weights, {free:,} are free",
            where=str(run.path),
            fix="free some space, or give --keep 1 or another --out",
        )


def _numbers(model: Model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
