"""Fit a task in its run directory: from configuration, model and data to weights and a result."""

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from headstart.config.run import RunConfig
from headstart.config.training import LoopConfig, Masking, OptimizerConfig, TrainingSettings, seconds_in
from headstart.errors import DeviceLost, IntegrityError, Log, TryAgain
from headstart.inference.evaluate import Scores, evaluate
from headstart.machine import Machine
from headstart.model.model import Model
from headstart.objectives.objective import Objective
from headstart.runs.checkpoint import clean, fault, refuse_not_finite, settings, states, weights_digest, write_tensors
from headstart.runs.directory import MetricsFile, RunDirectory, RunResult, config_bytes, identity_of, is_result_of
from headstart.runs.load import LoadedRun
from headstart.runs.shards import whole_model
from headstart.storage.atomic import atomic_file
from headstart.storage.locks import run_lock
from headstart.tokenizers.tokenizer import Tokenizer, Vocabularies
from headstart.training.calibration.cost import Meter
from headstart.training.calibration.rehearsal import steps_in_time
from headstart.training.checkpoints import LoopState
from headstart.training.compiling import should_compile
from headstart.training.loop import Training, train
from headstart.training.memory import NUMBER_BYTES, memory_full_is_try_again, must_shard
from headstart.training.step_log import Progress
from headstart.training.tensorboard import EventFile, Tracker


@dataclasses.dataclass(frozen=True)
class Console:
    """Where a run reports to: lines for a person, and every step for a progress bar."""

    log: Log = lambda line: None
    on_step: Callable[[Progress], None] = lambda progress: None
    track: Tracker | None = None  # where the metrics go besides metrics.jsonl
    on_start: Callable[[Path], None] = lambda path: None  # called with the run's directory


@dataclasses.dataclass(frozen=True)
class Session:
    """The run that a command works on, and what it computes with."""

    run: RunDirectory
    machine: Machine
    console: Console


@dataclasses.dataclass(frozen=True)
class TrainingTask:
    """All that a training needs, as `build` of a task makes it."""

    config: RunConfig
    tokenizer: Tokenizer | Vocabularies
    model: Model
    objective: Objective
    valid: Objective | None
    # What else the result has about the final weights.
    finish: Callable[[Model, Scores | None], dict[str, Any]] = lambda model, scores: {}
    # Refuses to go on where the data was changed since it was opened.
    check_data: Callable[[], None] = lambda: None


def run_config(given: TrainingSettings, start: LoadedRun | None, train: Objective, **own: Any) -> RunConfig:
    """All that makes a run what it is; where a time was given, its steps are measured later."""
    steps = given.steps or train.steps_in(given.epochs or 1.0, given.seed)
    return given.part(
        RunConfig, start=start.digest if start else "scratch", head=train.head, masking=given.part(Masking),
        optimizer=given.part(OptimizerConfig), loop=given.part(LoopConfig, steps=steps), **own,
    )  # fmt: skip


@contextlib.contextmanager
def run_session(out: str | Path, machine: Machine, console: Console) -> Iterator[Session]:
    """Within `with`, the run belongs to this command: it is locked, and all ranks are connected.

    The first rank has the lock and reports; the others are silent. A GPU that fails raises DeviceLost: what was saved
    is not affected.
    """
    run = RunDirectory(out)
    console.on_start(run.path)
    with machine.ranks.joined(machine.device), contextlib.ExitStack() as stack:
        machine.ranks.first(lambda: stack.enter_context(run_lock(run.path)))
        console = console if machine.ranks.is_first else Console()
        for reason in machine.reasons:
            console.log(reason)
        try:
            yield Session(run, machine, console)
        except torch.AcceleratorError as error:
            what = f"the GPU failed: {str(error).splitlines()[0]}"
            fix = "run the same command again: it resumes from the last checkpoint"
            raise DeviceLost(what, where=run.path, fix=fix) from error


def fit(task: TrainingTask, session: Session, override_resume: bool = False) -> RunResult:
    """Train to the end and write the result; a finished run is only read. The first rank reads and writes files."""
    run, machine, console = session.run, session.machine, session.console
    ranks, model = machine.ranks, task.model
    known = ranks.first(lambda: _start_run(task, session, override_resume))
    if known["result"] is not None:
        return cast(RunResult, dict(known["result"]))
    config = _with_steps(task.config, known["steps"])
    machine.prepare()
    is_sharded = ranks.first(lambda: must_shard(config, machine, allocated=NUMBER_BYTES * _numbers(model)))
    if is_sharded:
        console.log(f"each of {ranks.world} ranks holds a part of the model")
    is_compiled = should_compile(task.objective, model.config, config.loop.steps, machine) and not is_sharded
    if is_compiled:
        console.log("compiling the blocks first, which takes about half a minute")
    meter = Meter(config, task.objective, machine)

    def on_step(progress: Progress) -> None:
        meter.on_step(progress)
        console.on_step(progress)

    own = {name: "yes" for name, value in (("compiled", is_compiled), ("sharded", is_sharded)) if value}
    identity = identity_of(config)
    facts = {"machine": {**machine.facts(), **own}, "settings": identity}
    events = EventFile(run.path, console.log) if console.track else None
    training = Training(
        directory=run.path, model=model, objective=task.objective, valid=task.valid, optimizer=config.optimizer,
        loop=config.loop, machine=machine, facts=facts, log=console.log, on_step=on_step, events=events,
        check_data=task.check_data, expected={} if override_resume else identity,
        is_compiled=is_compiled, is_sharded=is_sharded,
    )  # fmt: skip
    if config.loop.time and known["is_new"]:
        config = _with_steps(config, steps_in_time(training, config.loop.time))
        training.loop = config.loop

    def write_config() -> None:
        run.result_file.unlink(missing_ok=True)  # first: it is of this config.toml alone
        run.weights_file.unlink(missing_ok=True)  # they are of that result
        run.write_config(config)

    ranks.first(write_config)
    with memory_full_is_try_again(config), contextlib.closing(events) if events else contextlib.nullcontext():
        state, scores = train(training)
    whole = whole_model(model, machine)

    def write_result() -> dict[str, Any]:
        result = _result(dataclasses.replace(task, config=config), session, state, scores, whole)
        meter.write(run)
        fault("before:result")
        written = run.write_result(result, config)
        if not config.loop.keep:
            shutil.rmtree(run.path / "checkpoints", ignore_errors=True)
        return written

    return cast(RunResult, ranks.first(write_result))


def _result(
    task: TrainingTask, session: Session, state: LoopState, scores: Scores | None, model: Model
) -> dict[str, Any]:
    """Write the final weights, and return the result: their digest and scores."""
    # The weights are the best ones now, or they were evaluated by a process that ended before this one.
    if task.valid is not None and (scores is None or task.config.loop.patience):
        scores = evaluate(model, task.valid, session.machine.alone)
    weights = {name: p.detach().cpu() for name, p in model.named_parameters()}
    refuse_not_finite(weights, session.run.path)
    found = task.finish(model, scores)  # first: without its result nobody reads the weights
    needed = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    with atomic_file(session.run.weights_file, needed) as file:
        write_tensors(Path(file.name), weights)
        fault("after:weights")
    return {
        "objective": task.config.objective,
        "step": state.step,
        "steps": state.steps,
        "weights_sha256": weights_digest(weights),
        "parameters": _numbers(model),
        "skipped": state.skipped,
        "stopped_early": state.stopped_early,
        "best_step": state.best_step,
        "valid": scores.values if scores else None,
        "evaluations": state.evaluations,
        "train_loss": state.train_loss,
        **found,
    }


def _with_steps(config: RunConfig, steps: int) -> RunConfig:
    return dataclasses.replace(config, loop=dataclasses.replace(config.loop, steps=steps))


def _start_run(task: TrainingTask, session: Session, override: bool) -> dict[str, Any]:
    """Whether the command fits what is there: the result of a finished run, or the steps to train."""
    run, log, config = session.run, session.console.log, task.config
    run.check_same(config, override, settings(run.path / "checkpoints"))
    result, is_new = run.read_result(), not run.config_file.exists()
    if config.loop.time and not is_new:  # the steps that were measured when the run began
        before = run.read_config().loop
        share = seconds_in(config.loop.time) / seconds_in(before.time) if before.time else 1.0
        config = _with_steps(config, max(before.steps, round(before.steps * share)))
    elif config.loop.time and (begun := result or next(states(run.path / "checkpoints"), None)):
        config, is_new = _with_steps(config, begun["steps"]), False
    clean(run.path)
    if result is not None and not run.config_file.exists():
        _bring_config_back(run, config, result)
    if result is not None and result["steps"] >= config.loop.steps:
        if not run.config_file.exists():
            log(f"{run.config_file}: missing; made again from the last checkpoint")
        elif has_weights(run, result):
            run.check_config(result)
            if not override:
                task.tokenizer.save(run.path)
            log(f"{run.path}: finished at step {result['step']:,}; nothing to do")
            if session.console.track:  # perhaps it was finished without the tracker
                with contextlib.closing(EventFile(run.path, log)) as events:
                    events.begin(MetricsFile(run.path / "metrics.jsonl", log).read)
            return {"result": result}
        else:
            log(f"{run.weights_file}: not what was written; made again from the last checkpoint")
    _check_disk(run, task.model, config)
    task.tokenizer.save(run.path)
    return {"result": None, "steps": config.loop.steps, "is_new": is_new}


def _bring_config_back(run: RunDirectory, config: RunConfig, result: Mapping[str, Any]) -> None:
    """Write the config.toml that a finished run has lost, where the command has the settings of its result."""
    known = _with_steps(config, result["steps"])
    if is_result_of(result, config_bytes(known)):
        run.write_config(known)
    elif not any((run.path / "checkpoints").glob("step-*")):
        what = "has no config.toml, and its result is of other settings"
        fix = f"give the settings that it was trained with, or delete {run.path}: the same command then starts anew"
        raise IntegrityError(what, where=run.path, fix=fix, code="mismatch")


def has_weights(run: RunDirectory, result: Mapping[str, Any]) -> bool:
    """Whether a finished run has the weights that its result names."""
    try:
        return weights_digest(load_file(run.weights_file)) == result["weights_sha256"]
    except (SafetensorError, OSError):
        return False


def _check_disk(run: RunDirectory, model: Model, config: RunConfig) -> None:
    """Refuse before the first step what could not be saved later."""
    copies = 3 + (config.loop.average != "none")  # weights, two moments of AdamW, perhaps an average
    written = len(list((run.path / "checkpoints").glob("step-*")))
    checkpoints = max(1, config.loop.keep + 1 - written)
    needed = 4 * _numbers(model) * (copies * checkpoints + 1)  # at last the weights alone
    free = shutil.disk_usage(run.path).free
    if free < needed:
        files = f"{config.loop.keep} checkpoints, one being written and the weights"
        what = f"{needed:,} bytes are needed for {files}, {free:,} are free"
        raise TryAgain(what, where=run.path, fix="free some space, or give --keep 1 or another --out", code="disk-full")


def _numbers(model: Model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
