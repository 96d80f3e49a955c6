"""A study that gives up exact repetition: every run is asked for it, the record says so, and a CPU has none to give."""

import dataclasses
import json

import pytest
import torch
from expected_errors import refused
from small_study import MODEL, small_config, write_files

from headstart.machine import Machine
from headstart.study import data as data_module
from headstart.study import study as study_module
from headstart.study import trial as trial_module
from headstart.study.data import prepare
from headstart.study.design import Pretraining, trials_of
from headstart.study.execution.scheduler import TaskResult
from headstart.study.settings import read_study
from headstart.study.study import study as run_study


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Tasks one after the other, and no process is started for them."""

    def run_in_processes(tasks, work, jobs, *, threads, on_share, on_result, log):
        for task in tasks:
            work(task.argument, lambda share: None)
            on_result(TaskResult(task.name, None, 0.0))
        return {}

    monkeypatch.setattr(study_module, "run_in_processes", run_in_processes)


@pytest.fixture
def pretended_gpu(monkeypatch):
    """A machine that has exactness to give up, as a GPU has."""

    def choose(device="auto", precision="auto", threads=None, *, fast=False):
        return Machine(torch.device("cpu"), "fp32", 1, ("fast: so it is",) if fast else (), fast)

    for module in (data_module, study_module, trial_module):
        monkeypatch.setattr(module, "choose", choose)


def test_every_pretraining_and_trial_is_asked_to_be_fast(files, tmp_path, monkeypatch):
    config = small_config(files, arms=["finetuned"], budgets=[10], seeds=1)
    data = prepare(config, MODEL, tmp_path / "study", "cpu", lambda line: None)
    assert not data.config.study.fast
    asked = []

    def choose(device, precision, threads, *, fast):
        asked.append((device, precision, threads, fast))
        return Machine(torch.device("cpu"), "fp32", 1)

    monkeypatch.setattr(trial_module, "choose", choose)
    study = dataclasses.replace(data.config.study, fast=True)
    fast = dataclasses.replace(data, config=dataclasses.replace(data.config, study=study))
    trial_module.run_pretraining(fast, Pretraining("causal", 0), lambda share: None)
    trial_module.run_trial(fast, next(iter(trials_of(study))), lambda share: None)
    assert asked == [("cpu", "fp32", 1, True)] * 2


def test_a_fast_study_says_so_and_goes_on_only_as_one(files, tmp_path, pretended_gpu):
    config, directory, told = (
        small_config(files, arms=["majority"], budgets=[10], seeds=1),
        tmp_path / "study",
        [],
    )
    found = run_study(config, out=directory, model=MODEL, jobs=1, fast=True, log=told.append)
    assert "fast: so it is" in told
    assert found.config["study"]["fast"] is True
    assert read_study(directory / "study.toml")[0].study.fast
    assert json.loads((directory / "timing.json").read_text())["machine"]["exact"] == "no, --fast"
    with refused("changed", "study.fast", "True", "False"):
        run_study(config, out=directory, model=MODEL, jobs=1)
    in_file = dataclasses.replace(config, study=dataclasses.replace(config.study, fast=True))
    assert run_study(in_file, out=directory, model=MODEL, jobs=1) == found


def test_an_exact_study_is_not_gone_on_with_as_a_fast_one(files, tmp_path, pretended_gpu):
    config, directory = small_config(files, arms=["majority"], budgets=[10], seeds=1), tmp_path / "study"
    run_study(config, out=directory, model=MODEL, jobs=1)
    with refused("changed", "study.fast", "False", "True"):
        run_study(config, out=directory, model=MODEL, jobs=1, fast=True)


def test_on_a_cpu_fast_changes_nothing_and_says_so(files, tmp_path):
    config, told = small_config(files, arms=["scratch"], budgets=[10], seeds=1), []
    made = {}
    for name, fast in (("exact", False), ("fast", True)):
        directory = tmp_path / name
        run_study(
            config,
            out=directory,
            model=MODEL,
            jobs=1,
            device="cpu",
            fast=fast,
            log=told.append if fast else print,
        )
        made[name] = [(directory / file).read_bytes() for file in ("study.json", "study.toml")]
    assert made["exact"] == made["fast"]
    assert not [file for file in made["exact"] if b"fast" in file]
    assert "exact, although --fast was asked for: on a CPU it costs nothing" in told
