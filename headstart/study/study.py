"""Does pretraining pay, and how much? The whole study in one call; calling it again resumes it.

directory/  study.toml  data/  tokenizer/  pretrain/OBJECTIVE-sN/  trials/ARM-bN-sN/  model/  study.json  timing.json
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headstart.config.model import model_fields
from headstart.config.study import PRETRAINED, STUDY_TIME, WITHOUT_STEPS, StudyConfig, StudyPart
from headstart.config.training import PretrainObjective
from headstart.data.in_memory import Given
from headstart.errors import IntegrityError, Log, UserError
from headstart.hardware import available_cores
from headstart.inference.predict import OnShare
from headstart.machine import Device, choose
from headstart.storage.atomic import atomic_write
from headstart.storage.locks import run_lock
from headstart.study.data import StudyData, labelled_sets, prepare, pretraining_operations, trial_operations
from headstart.study.design import Pretraining, Trial, check, trials_of
from headstart.study.execution.ray_workers import TaskResources, import_ray, run_on_ray
from headstart.study.execution.scheduler import ScheduledTask, TaskResult
from headstart.study.execution.workers import Interrupted, run_in_processes
from headstart.study.given_data import given_data
from headstart.study.model import keep_model
from headstart.study.recipes.costs import Sizes, StudyDisk
from headstart.study.recipes.plan import time_sentence
from headstart.study.recipes.recipe import RECIPE, Question, Recipe, with_recipe
from headstart.study.recipes.timing import Times, is_timed, retimed, share_done
from headstart.study.record import StudyRecord
from headstart.study.results import summarise
from headstart.study.settings import check_same, demo_config, settings_of, with_demo, with_start
from headstart.study.trial import machine_of, run_pretraining, run_trial

Engine = Literal["processes", "ray"]
RunTasks = Callable[..., dict[str, TaskResult]]
GPU_JOBS = 4  # a small model leaves most of a GPU idle
MOST_JOBS = 10_000


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is: its share, and in tasks."""

    share: float
    finished: int
    tasks: int
    running: dict[str, float] = field(default_factory=dict)


OnProgress = Callable[[StudyProgress], None]


def study(
    config: StudyConfig | None = None,
    *,
    out: str | Path,
    corpus: Given | Sequence[Given] | None = None,
    train: Given | None = None,
    valid: Given | None = None,
    test: Given | None = None,
    model: dict[str, Any] | None = None,
    jobs: int | None = None,
    engine: Engine = "processes",
    ray_address: str | None = None,
    device: Device = "auto",
    fast: bool = False,
    command: list[str] | None = None,
    given: Collection[str] = (),
    log: Log = lambda line: None,
    on_progress: OnProgress = lambda progress: None,
) -> StudyRecord:
    """Prepare the data, run the missing tasks, and return the results, which are also in study.json.

    Data given here (paths, frames or datasets, see data/in_memory.py) replaces the data named in `config`. The
    results do not depend on `jobs` or `engine`. With `fast` on a GPU two runs may differ in their last bits. With a
    `time` in the settings, or data without settings, a recipe fills in what is not given; `given` names settings
    (study.seeds) that it leaves alone although they have their default value.
    """
    started = time.monotonic()
    is_demo = config is None and corpus is None and train is None
    usual = demo_config() if is_demo else StudyConfig(study=StudyPart(time=STUDY_TIME))
    config, directory = config or usual, Path(out)
    if fast:
        config = dataclasses.replace(config, study=dataclasses.replace(config.study, fast=True))
    sources = given_data(config, corpus, train, valid, test)
    check(sources.config)
    model = model_fields(model or {})
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise UserError(f"--jobs {jobs}", fix=f"give 1 to {MOST_JOBS:,}")
    if ray_address and engine != "ray":
        raise UserError("--ray-address without --engine=ray", fix="give --engine=ray too", code="missing")
    ray_address = ray_address or os.environ.get("RAY_ADDRESS")
    if engine == "ray":
        import_ray(ray_address)  # refused early where it is missing
    with run_lock(directory):
        asked = with_start(sources.config)
        files, fields = sources.as_files(with_demo(asked, directory), directory), model
        sets = labelled_sets(files, log, sources.sets)
        if asked.study.time and files.pretrain and not asked.study.start:
            question = Question(files, fields, Sizes.of(files, sets), device, frozenset(given))
            files, fields = with_recipe(question, directory, log)
        data = prepare(files, fields, directory, device, log, sets)
        # Decided here: a worker on another node might choose another device.
        on_gpu = choose(device).device.type == "cuda"
        data = dataclasses.replace(data, device="cuda" if on_gpu else "cpu")
        settings = settings_of(data, asked, fields)
        check_same(directory, settings, has_final_steps=not is_timed(directory))
        at_once, run = _engine(data, jobs, engine, ray_address)
        log(_summary(data, _tasks(data), at_once or 1))
        if not (directory / RECIPE).exists() and (time_needed := time_sentence(files, fields, sets, device)):
            log(time_needed)
        execution = _Execution(data, at_once, run, on_progress, log, time.monotonic() - started)
        task_results = {}
        if is_timed(directory):
            task_results = execution.run(data, needs_base=False)
            data, recipe = retimed(data, execution.times, log)
            execution.foreseen = recipe.seconds
            settings = settings_of(data, asked, fields)
            check_same(directory, settings, has_final_steps=False)
            atomic_write(directory / RECIPE, recipe.to_json())  # now that study.toml has the steps
        task_results |= execution.run(data)
        if damaged := next((result for result in task_results.values() if result.is_damaged), None):
            raise IntegrityError(f"{damaged.name}: {damaged.error}")
        data.refuse_other_bases(trials_of(data.config.study))
        with data.redone_if_damaged():
            record = summarise(data, _pretrainings(data), task_results, command or ["headstart", "study"], settings)
            record = dataclasses.replace(record, kept_model=keep_model(data, record))
        atomic_write(directory / "study.json", record.to_json())
    return record


def _pretrainings(data: StudyData) -> list[Pretraining]:
    study = data.config.study
    if not data.steps or not set(study.arms) & set(PRETRAINED):
        return []
    numbers = range(min(study.pretrain_seeds, study.seeds))
    objectives: list[PretrainObjective] = study.objectives  # type: ignore[assignment]
    wanted = objectives if "finetuned" in study.arms else objectives[:1] if "frozen" in study.arms else []
    pretrainings = [Pretraining(objective, n) for objective in wanted for n in numbers]
    if "shuffled" in study.arms:
        pretrainings += [Pretraining(objectives[0], n, shuffled=True) for n in numbers]
    return pretrainings


def _tasks(data: StudyData) -> list[ScheduledTask]:
    """Pretrainings first, because many trials wait for them; then the trials that wait for none.

    A pretraining has a GPU to itself: beside others it was lost to "unspecified launch failure" (docs/findings.md).
    """
    is_gpu, tasks, threads = data.device == "cuda", [], data.config.study.threads
    for task in _pretrainings(data):
        cost, device = pretraining_operations(data, task.objective), "whole gpu" if is_gpu else "cpu"
        tasks.append(ScheduledTask(task.name, (data, task), cost, device=device, threads=threads))  # type: ignore[arg-type]
    for trial in trials_of(data.config.study):
        base = Pretraining.of(trial, data.config.study)
        cost = max(trial_operations(data, trial), 1.0)
        after = [*([base.name] if base else []), *(other.name for other in data.trials_before(trial))]
        is_network = trial.arm.kind not in WITHOUT_STEPS or data.makes_vectors(trial)
        tasks.append(
            ScheduledTask(
                trial.name, (data, trial), cost, tuple(after), "gpu" if is_gpu and is_network else "cpu",
                threads if is_network else 1,
            )
        )  # fmt: skip
    return sorted(tasks, key=lambda task: (isinstance(task.argument[1], Trial), bool(task.after)))


def _needs_base(task: ScheduledTask) -> bool:
    """Whether a task is a pretraining, waits for one, or runs beside it: on a GPU's CPU the baselines do."""
    data, what = task.argument
    if isinstance(what, Pretraining) or what.arm.kind in (*PRETRAINED, "imported", "scratch-long"):
        return True
    return data.device == "cuda" and what.arm.kind in WITHOUT_STEPS


def work(argument: tuple[StudyData, Pretraining | Trial], on_share: OnShare) -> None:
    """Run one task, in a worker's process."""
    data, task = argument
    machine_of(data).prepare()
    with data.redone_if_damaged():
        if isinstance(task, Trial):
            run_trial(data, task, on_share)
        else:
            run_pretraining(data, task, on_share)


def _is_done(task: ScheduledTask) -> bool:
    data, what = task.argument
    file = data.trial_file(what) if isinstance(what, Trial) else data.base(what) / "result.json"
    return bool(file.exists())


def _checks(tasks: list[ScheduledTask], missing: list[ScheduledTask]) -> list[ScheduledTask]:
    """The finished pretrainings that trials are still to start from, or have not: each may be of another study."""
    bases = {name for task in missing for name in task.after}
    for task in tasks:
        data, what = task.argument
        with data.redone_if_damaged():
            if isinstance(what, Trial) and data.has_other_base(what):
                bases |= set(task.after)
    return [t for t in tasks if isinstance(t.argument[1], Pretraining) and t.name in bases and _is_done(t)]


def _summary(data: StudyData, tasks: list[ScheduledTask], jobs: int) -> str:
    study, sets = data.config.study, data.facts["data"]
    disk = StudyDisk.of(data.config, data.model, len(data.labels), len(_pretrainings(data)), jobs)
    operations, rates = sum(task.cost for task in tasks), ", ".join(f"{rate:g}" for rate in data.learning_rates)
    return (
        f"labelled rows: {sets['train']['rows']:,} train, {sets['valid']['rows']:,} valid, "
        f"{sets['test']['rows']:,} test; {len(data.labels)} classes\n"
        f"{len(tasks)} tasks of {operations:.2g} operations; budgets of {', '.join(map(str, study.budgets))} labels; "
        f"seeds: {study.seeds}; learning rates that neural arms try on valid: {rates}\n"
        f"{disk.sentence}"
    )


def _engine(data: StudyData, jobs: int | None, engine: Engine, address: str | None) -> tuple[int | None, RunTasks]:
    """How many tasks to run at once (None: as many as a running cluster has room for), and what runs them."""
    threads, is_gpu = data.config.study.threads, data.device == "cuda"
    cores = available_cores()
    room = min(max(1, cores // threads), GPU_JOBS if is_gpu else cores)
    if engine == "processes":
        return jobs or room, functools.partial(run_in_processes, threads=threads)
    resources = TaskResources(threads, 1 / GPU_JOBS if is_gpu else 0.0)
    at_once = jobs or (None if address else room)
    return at_once, functools.partial(run_on_ray, resources=resources, address=address)


class _Execution:
    """Runs the tasks that are not done yet, and keeps their times in timing.json."""

    def __init__(
        self, data: StudyData, jobs: int | None, engine: RunTasks, on_progress: OnProgress, log: Log, seconds: float
    ) -> None:
        self._jobs, self._engine, self._on_progress, self._log = jobs, engine, on_progress, log
        file = data.directory / RECIPE
        self.foreseen = Recipe.read(file).seconds if file.exists() else 0.0
        facts = {"jobs": jobs, "threads": data.config.study.threads, "machine": machine_of(data).facts()}
        self.times = Times(data.directory / "timing.json", seconds, facts, log)

    def run(self, data: StudyData, needs_base: bool = True) -> dict[str, TaskResult]:
        """All tasks, or those that need no base."""
        tasks = _tasks(data)
        missing = [task for task in tasks if not _is_done(task)]
        names, checks = {task.name for task in missing}, _checks(tasks, missing)
        first = {*names, *(task.name for task in checks)}
        waiting = [dataclasses.replace(t, after=tuple(n for n in t.after if n in first)) for t in [*checks, *missing]]
        chosen = [task for task in waiting if needs_base or not _needs_base(task)]
        costs = {task.name: task.cost for task in tasks}
        total, before = sum(costs.values()), sum(cost for name, cost in costs.items() if name not in names)
        running: dict[str, float] = {}
        finished: list[str] = []

        def report() -> None:
            done = before + sum(costs[name] for name in finished) + sum(costs[n] * s for n, s in running.items())
            count = len(tasks) - len(missing) + len(finished)
            share = share_done(done / total, self.times.spent, self.foreseen)
            self._on_progress(StudyProgress(share, count, len(tasks), dict(running)))

        def on_share(name: str, share: float) -> None:
            running[name] = share
            report()

        def on_result(result: TaskResult) -> None:
            running.pop(result.name, None)
            finished.extend(names & {result.name})
            self.times.add(result)
            report()

        report()
        try:
            return self._engine(chosen, work, self._jobs, on_share=on_share, on_result=on_result, log=self._log)
        except Interrupted as stopped:
            raise stopped.counted(sum(map(_is_done, tasks)), len(tasks)) from None
