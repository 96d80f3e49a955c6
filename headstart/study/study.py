"""Does pretraining pay, and how much? The whole study in one call; calling it again goes on.

directory/  study.toml  data/  tokenizer/  pretrain/OBJECTIVE-sN/  trials/ARM-bN-sN/  study.json  timing.json
"""

import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headstart.errors import UserError
from headstart.study.agenda import Outcome, Task
from headstart.study.cost import pretraining_operations, trial_operations
from headstart.study.design import PRETRAINED, Pretraining, StudyConfig, Trial, check, trials_of
from headstart.study.given_data import given_data
from headstart.study.material import Material, prepare
from headstart.study.ray_workers import Need, carry_out_on_ray, import_ray
from headstart.study.results import summarise
from headstart.study.settings import check_same, demo_config, settings_of, with_demo, with_start
from headstart.study.trial import OnShare, run_pretraining, run_trial, trial_file
from headstart.study.workers import carry_out
from headstart.text.in_memory import Given
from headstart.training.lock import RunLock
from headstart.training.machine import Device, choose
from headstart.training.pretrain import PretrainObjective
from headstart.training.run_directory import write_whole

Engine = Literal["processes", "ray"]
CarryOut = Callable[..., dict[str, Outcome]]
GPU_JOBS = 4  # a small model leaves most of a GPU idle


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is, in shares of its work."""

    done: float
    total: float
    finished: int
    tasks: int
    running: dict[str, float] = field(default_factory=dict)


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
    tell: Callable[[str], None] = lambda line: None,
    on_progress: Callable[[StudyProgress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Prepare, carry out what is missing, summarise; returns what study.json holds.

    The data is that of the settings, unless it is given beside them: paths, frames or datasets (text/in_memory.py).
    Neither the jobs nor the engine that runs them bears on the results. With `fast` on a GPU the same call need not
    give the same bytes.
    """
    is_demo = config is None and corpus is None and train is None
    config, directory = config or (demo_config() if is_demo else StudyConfig()), Path(out)
    if fast:
        config = dataclasses.replace(config, study=dataclasses.replace(config.study, fast=True))
    data = given_data(config, corpus, train, valid, test)
    check(data.config)
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs}", fix="give 1 or more")
    if ray_address and engine != "ray":
        raise UserError("--ray-address without --engine ray", fix="give --engine ray too")
    ray_address = ray_address or os.environ.get("RAY_ADDRESS")
    if engine == "ray":
        import_ray(ray_address)  # before anything is prepared: it may be missing
    with RunLock(directory):
        given = with_start(data.config)
        files = data.as_files(with_demo(given, directory), directory)
        material = prepare(files, model or {}, directory, device, tell)
        # Settled here: a worker on another node might choose otherwise.
        on_gpu = choose(device).device.type == "cuda"
        material = dataclasses.replace(material, device="cuda" if on_gpu else "cpu")
        settings = settings_of(material, given, model or {})
        check_same(directory, settings)
        pretrainings = _pretrainings(material)
        tasks = _tasks(material, pretrainings)
        tell(_opening(material, tasks))
        workers = _workers(material, jobs, engine, ray_address)
        outcomes = _carry_out(material, tasks, *workers, on_progress, tell)
        found = summarise(material, pretrainings, outcomes, command or ["headstart", "study"], settings)
        write_whole(
            directory / "study.json", json.dumps(found, indent=1, ensure_ascii=False).encode() + b"\n"
        )
    return found


# ---- carrying out ---------------------------------------------------------------------------------------------


def _pretrainings(material: Material) -> list[Pretraining]:
    study = material.config.study
    if not material.steps or not set(study.arms) & set(PRETRAINED):
        return []
    numbers = range(min(study.pretrain_seeds, study.seeds))
    objectives: list[PretrainObjective] = study.objectives  # type: ignore[assignment]
    wanted = objectives if "finetuned" in study.arms else objectives[:1] if "frozen" in study.arms else []
    found = [Pretraining(objective, n) for objective in wanted for n in numbers]
    if "shuffled" in study.arms:
        found += [Pretraining(objectives[0], n, shuffled=True) for n in numbers]
    return found


def _tasks(material: Material, pretrainings: list[Pretraining]) -> list[Task]:
    """Pretrainings first, since much waits for them; then trials, those that wait for nothing before the others."""
    tasks = [
        Task(task.name, (material, task), cost=pretraining_operations(material, task.objective))
        for task in pretrainings
    ]
    for trial in trials_of(material.config.study):
        base = Pretraining.of(trial, material.config.study)
        cost = max(trial_operations(material, trial), 1.0)
        tasks.append(Task(trial.name, (material, trial), cost=cost, after=(base.name,) if base else ()))
    return sorted(tasks, key=lambda task: (isinstance(task.argument[1], Trial), bool(task.after)))


def work(argument: tuple[Material, Pretraining | Trial], on_share: OnShare) -> None:
    """What a worker does with a task."""
    material, task = argument
    if isinstance(task, Trial):
        run_trial(material, task, on_share)
    else:
        run_pretraining(material, task, on_share)


def _jobs(material: Material) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    most = max(1, cores // material.config.study.threads)
    return min(most, GPU_JOBS) if material.device == "cuda" else most


def _workers(
    material: Material, jobs: int | None, engine: Engine, ray_address: str | None
) -> tuple[int | None, CarryOut]:
    """How many tasks at once (None: as many as a running cluster has room for), and what carries them out."""
    if engine == "processes":
        return jobs or _jobs(material), carry_out
    need = Need(material.config.study.threads, 1 / GPU_JOBS if material.device == "cuda" else 0.0)
    at_once = jobs or (None if ray_address else _jobs(material))
    return at_once, functools.partial(carry_out_on_ray, need=need, address=ray_address)


def _carry_out(
    material: Material,
    tasks: list[Task],
    jobs: int | None,
    carry: CarryOut,
    on_progress: Callable[[StudyProgress], None],
    tell: Callable[[str], None],
) -> dict[str, Outcome]:
    """Do what is not done yet, and keep the times, which are nobody's result, beside it."""
    missing = [task for task in tasks if not _is_done(material, task)]
    names = {task.name for task in missing}
    waits = [dataclasses.replace(t, after=tuple(name for name in t.after if name in names)) for t in missing]
    costs = {task.name: task.cost for task in tasks}
    total, before = sum(costs.values()), sum(costs[task.name] for task in tasks if task.name not in names)
    running: dict[str, float] = {}
    finished: list[str] = []
    times = _Times(material, jobs)

    def report() -> None:
        done = before + sum(costs[name] for name in finished) + sum(costs[n] * s for n, s in running.items())
        on_progress(
            StudyProgress(done, total, len(tasks) - len(missing) + len(finished), len(tasks), dict(running))
        )

    def on_share(name: str, share: float) -> None:
        running[name] = share
        report()

    def on_outcome(outcome: Outcome) -> None:
        running.pop(outcome.name, None)
        finished.append(outcome.name)
        times.note(outcome)
        report()

    report()
    return carry(waits, work, jobs, on_share=on_share, on_outcome=on_outcome, tell=tell)


def _is_done(material: Material, task: Task) -> bool:
    what = task.argument[1]
    if isinstance(what, Trial):
        return trial_file(material, what).exists()
    return (material.base(what) / "result.json").exists()


class _Times:
    """timing.json: how long each task took, over all calls."""

    def __init__(self, material: Material, jobs: int | None) -> None:
        self.file = material.directory / "timing.json"
        study = material.config.study
        machine = choose(material.device, study.precision, study.threads, fast=study.fast)
        self.times: dict[str, Any] = {"seconds": 0.0, "pretraining": {}, "trials": {}}
        if self.file.exists():
            self.times |= json.loads(self.file.read_bytes())
        self.times |= {"jobs": jobs, "threads": study.threads, "machine": machine.facts()}
        self._since = time.monotonic()

    def note(self, outcome: Outcome) -> None:
        kind = "trials" if "-b" in outcome.name else "pretraining"
        self.times[kind][outcome.name] = self.times[kind].get(outcome.name, 0.0) + round(outcome.seconds, 2)
        now = time.monotonic()
        self.times["seconds"] = round(self.times["seconds"] + now - self._since, 2)
        self._since = now
        write_whole(self.file, json.dumps(self.times, indent=1).encode() + b"\n")


def _opening(material: Material, tasks: list[Task]) -> str:
    study, data = material.config.study, material.facts["data"]
    operations = sum(task.cost for task in tasks)
    rates = ", ".join(f"{rate:g}" for rate in material.rates)
    return (
        f"{data['train']['rows']:,} labelled rows to learn from, {data['valid']['rows']:,} to choose by, "
        f"{data['test']['rows']:,} to test on; {len(material.labels)} classes\n"
        f"{len(tasks)} pieces of work ({study.seeds} seeds, budgets of {', '.join(map(str, study.budgets))} labels), "
        f"{operations:.2g} operations; every neural arm tries the rates {rates} on valid"
    )
