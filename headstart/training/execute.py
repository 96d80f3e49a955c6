"""Carry a run out in its directory: from configuration, model and data to weights and a result."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headstart.errors import DeviceLost, TryAgain
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
from headstart.training.cost import Meter
from headstart.training.evaluate import Scores, evaluate
from headstart.training.lock import RunLock
from headstart.training.loop import Progress, Training, train
from headstart.training.machine import Machine
from headstart.training.memory import NUMBER_BYTES, memory_full_is_try_again, must_shard
from headstart.training.metrics import MetricsFile
from headstart.training.run_directory import RunConfig, RunDirectory
from headstart.training.spreading import whole_model
from headstart.training.tracking import EventFile, Tracker
from headstart.training.vocabularies import Vocabularies


@dataclasses.dataclass(frozen=True)
class Console:
    """Where a run talks to: lines for a person, and every step for a progress bar."""

    tell: Callable[[str], None] = lambda line: None
    on_step: Callable[[Progress], None] = lambda progress: None
    track: Tracker | None = None
    """Where the metrics go besides metrics.jsonl."""


@contextlib.contextmanager
def held(run: RunDirectory, machine: Machine, console: Console) -> Iterator[Console]:
    """Within `with`, the run is this command's: locked, and where there are several ranks, with all of them.

    The first one has the lock and the word; the others get a console that says nothing. A GPU that fails (a kernel
    that breaks off, a card that falls off its bus) is said to have failed: what was saved is not touched by it.
    """
    with machine.ranks.joined(machine.device), contextlib.ExitStack() as stack:

        def lock() -> None:
            stack.enter_context(RunLock(run.path))

        machine.ranks.first(lock)
        try:
            yield console if machine.ranks.is_first else Console()
        except torch.AcceleratorError as error:
            raise DeviceLost(
                f"the GPU failed: {str(error).splitlines()[0]}", where=str(run.path),
                fix="run the same command again: it goes on from the last checkpoint",
            ) from error  # fmt: skip


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
    """Train to the end and write the result; the caller holds the run. A finished one is only read.

    With several ranks all train; what is read and written in the run's directory, the first one reads and writes.
    """
    ranks = machine.ranks
    known = ranks.first(lambda: _begin(run, config, tokenizer, model, console, override))
    if known["result"] is not None:
        return dict(known["result"])
    config = dataclasses.replace(config, loop=dataclasses.replace(config.loop, steps=known["steps"]))
    machine.prepare()
    events = EventFile(run.path, console.tell) if console.track else None
    is_sharded = ranks.first(lambda: must_shard(config, machine, held=NUMBER_BYTES * _numbers(model)))
    if is_sharded:
        console.tell(f"each of {ranks.world} ranks holds a part of the model")
    is_compiled = pays(objective, model.config, config.loop.steps, machine) and not is_sharded
    if is_compiled:
        console.tell("the blocks are compiled first, which takes about half a minute")
    meter = Meter(config, objective, machine)

    def on_step(progress: Progress) -> None:
        meter.on_step(progress)
        console.on_step(progress)

    training = Training(
        directory=run.path,
        model=model,
        objective=objective,
        valid=valid,
        optimizer=config.optimizer,
        loop=config.loop,
        machine=machine,
        facts={
            "machine": {
                **machine.facts(),
                **({"compiled": "yes"} if is_compiled else {}),
                **({"sharded": "yes"} if is_sharded else {}),
            },
            "data": config.data.fingerprint,
            "tokenizer": tokenizer.fingerprint,
        },
        tell=console.tell,
        on_step=on_step,
        events=events,
        is_compiled=is_compiled,
        is_sharded=is_sharded,
    )
    if config.minutes and known["is_new"]:
        steps = steps_in_minutes(training, config.minutes)
        config = dataclasses.replace(config, loop=dataclasses.replace(config.loop, steps=steps))
        training.loop = config.loop

    def begin() -> None:
        run.write_config(config)
        run.result_file.unlink(missing_ok=True)

    ranks.first(begin)
    with memory_full_is_try_again(config), contextlib.closing(events) if events else contextlib.nullcontext():
        state, last_scores = train(training)
    whole = whole_model(model, machine)

    def end() -> dict[str, Any]:
        # The weights are the best ones now, or they were evaluated by a process that ended before this one.
        is_known = last_scores is not None and not config.loop.patience
        scores = last_scores if is_known or valid is None else evaluate(whole, valid, machine.alone)
        weights = {name: p.detach().cpu() for name, p in whole.named_parameters()}
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
            **finish(whole, scores),
        }
        meter.write(run)
        fault("before:result")
        return run.write_result(result)

    return ranks.first(end)


def _begin(
    run: RunDirectory,
    config: RunConfig,
    tokenizer: Tokenizer | Vocabularies,
    model: Model,
    console: Console,
    override: bool,
) -> dict[str, Any]:
    """Whether the command fits what is there: the result of a finished run, or the steps to train."""
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
            return {"result": result}
        console.tell(f"{run.weights_file}: not what was written; made again from the last checkpoint")
    _check_disk(run, model, config)
    with disk_full_is_try_again(run.path, len(str(tokenizer.spec))):
        tokenizer.save(run.path)
    return {"result": None, "steps": config.loop.steps, "is_new": not run.config_file.exists()}


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
