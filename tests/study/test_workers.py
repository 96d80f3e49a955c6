import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import study_work
import torch
from study_work import is_gone

from headstart.errors import DeviceLost
from headstart.study.agenda import Task
from headstart.study.workers import carry_out, ending_of


def tasks_of(place, **kinds):
    return [Task(name, (kind, str(place / name))) for name, kind in kinds.items()]


def test_every_task_is_done_and_told_of(tmp_path):
    heard = []
    tasks = tasks_of(tmp_path, **{f"t{number}": "works" for number in range(5)})
    outcomes = carry_out(tasks, study_work.work, 2, on_outcome=lambda outcome: heard.append(outcome.name))
    assert {name: outcome.error for name, outcome in outcomes.items()} == dict.fromkeys(heard)
    assert sorted(heard) == [f"t{number}" for number in range(5)]
    assert all((tmp_path / name).exists() for name in heard)


def test_a_task_waits_for_those_that_it_builds_on(tmp_path):
    first, second = tasks_of(tmp_path, second="works", first="works")
    tasks = [Task(first.name, first.argument, after=("first",)), second]
    carry_out(tasks, study_work.work, 2)
    assert float((tmp_path / "first").read_text()) < float((tmp_path / "second").read_text())


def test_a_task_that_raises_has_failed_and_the_others_go_on(tmp_path):
    tasks = tasks_of(tmp_path, bad="user error", bug="bug", good="works")
    tasks.append(Task("waits", ("works", str(tmp_path / "waits")), after=("bad",)))
    outcomes = carry_out(tasks, study_work.work, 2)
    assert outcomes["bad"].error == "came\nfix: give something else"
    assert "ZeroDivisionError: a bug" in outcomes["bug"].error
    assert outcomes["waits"].error == "bad failed, on which it builds"
    assert outcomes["good"].error is None
    assert not (tmp_path / "waits").exists()


def test_a_worker_that_dies_is_replaced_and_its_task_tried_again(tmp_path):
    outcomes = carry_out(tasks_of(tmp_path, a="dies once", b="dies", c="works"), study_work.work, 1)
    assert outcomes["a"].error is None
    assert (tmp_path / "a").exists()
    assert outcomes["b"].error == "its process ended 3 times at one place (SIGKILL)"
    assert outcomes["c"].error is None


def test_a_process_whose_gpu_failed_does_no_more_tasks(tmp_path):
    tasks = tasks_of(tmp_path, a="loses its gpu once", b="loses its gpu", c="works")
    said = []
    outcomes = carry_out(tasks, study_work.work, 1, tell=said.append)
    assert outcomes["a"].error is outcomes["c"].error is None
    assert (
        outcomes["b"].error
        == "its process ended 3 times at one place (CUDA error: unspecified launch failure)"
    )
    for name, tries in (("a", 2), ("b", 3)):
        processes = (tmp_path / f"{name}.tries").read_text().split()
        assert len(set(processes)) == len(processes) == tries
    loss = "its process ended (CUDA error: unspecified launch failure); it goes on where it was"
    assert said == [f"a: {loss} (try 2 of 3)", f"b: {loss} (try 2 of 3)", f"b: {loss} (try 3 of 3)"]


def test_a_task_that_comes_further_each_time_is_tried_as_often_as_it_takes(tmp_path):
    outcomes = carry_out(tasks_of(tmp_path, a="loses its gpu further on"), study_work.work, 1)
    assert outcomes["a"].error is None
    assert (tmp_path / "a.tries").read_text() == "xxxxx"


def test_who_finds_no_memory_beside_others_is_tried_again_among_fewer(tmp_path):
    said = []
    first, last = "finds no memory at first", "works when others found no memory"
    outcomes = carry_out(tasks_of(tmp_path, a=first, b=first, c=last), study_work.work, 3, tell=said.append)
    assert {outcome.error for outcome in outcomes.values()} == {None}
    assert sorted(line[:1] for line in said) == ["a", "b"]
    tried = "no memory was left for it beside others; it is tried again"
    assert [line[3:] for line in said] == [f"{tried}, {count} at a time" for count in (2, 1)]


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError(), "CUDA error: out of memory"])
def test_memory_that_is_full_outside_of_training_is_known_as_such(error):
    def work(argument, on_share):
        raise torch.AcceleratorError(error) if isinstance(error, str) else error

    ending = ending_of(work, None, lambda share: None)
    assert ending.is_crowded
    assert "in work" in ending.error


@pytest.mark.parametrize("kind", ["works", "user error", "bug"])
def test_a_gpus_memory_is_given_back_after_each_task(kind, tmp_path, monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    ending = ending_of(study_work.work, (kind, str(tmp_path / "task")), lambda share: None)
    assert (ending.error is None) == (kind == "works")
    assert emptied


def test_a_gpu_that_fails_when_its_memory_is_given_back_has_failed(tmp_path, monkeypatch):
    def fails():
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", fails)
    with pytest.raises(DeviceLost, match="unspecified launch failure"):
        ending_of(study_work.work, ("bug", str(tmp_path / "task")), lambda share: None)


PROGRAM = """
import sys
import study_work
from headstart.study.agenda import Task
from headstart.study.workers import Interrupted, carry_out
try:
    carry_out([Task("a", ("sleeps", sys.argv[1] + "/a"))], study_work.work, 1)
except Interrupted as error:
    sys.exit(error.exit_code)
"""


def started(place):
    environment = {**os.environ, "PYTHONPATH": str(Path(study_work.__file__).parent)}
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, str(place)], env=environment)
    deadline = time.monotonic() + 60
    pid = place / "a.pid"
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return parent, int(pid.read_text())


def test_workers_die_with_whoever_started_them(tmp_path):
    parent, worker = started(tmp_path)
    parent.kill()
    parent.wait()
    assert is_gone(worker)


def test_a_signal_stops_all_workers_and_is_the_exit_code(tmp_path):
    parent, worker = started(tmp_path)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(30) == 143
    assert is_gone(worker)
