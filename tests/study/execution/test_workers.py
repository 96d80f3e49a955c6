import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import worker_tasks
from expected_errors import refused
from worker_tasks import is_gone

from headstart.errors import DeviceLost
from headstart.study.execution.scheduler import ScheduledTask, Scheduler
from headstart.study.execution.workers import ProcessPool, run_in_processes, run_task
from headstart.training.signals import StopRequests


def tasks_of(directory, **kinds):
    return [ScheduledTask(name, (kind, str(directory / name))) for name, kind in kinds.items()]


def test_every_task_is_done_and_told_of(tmp_path):
    heard = []
    tasks = tasks_of(tmp_path, **{f"t{number}": "works" for number in range(5)})
    results = run_in_processes(tasks, worker_tasks.work, 2, on_result=lambda result: heard.append(result.name))
    assert {name: result.error for name, result in results.items()} == dict.fromkeys(heard)
    assert sorted(heard) == [f"t{number}" for number in range(5)]
    assert all((tmp_path / name).exists() for name in heard)


def test_idle_workers_end_by_themselves_and_so_give_back_what_they_share(tmp_path):
    pool = ProcessPool(Scheduler(tasks_of(tmp_path, a="works"), 1), worker_tasks.work)
    with StopRequests() as requests:
        pool.run(requests)
    processes = [worker.process for worker in pool._idle]
    pool.close()
    assert [process.exitcode for process in processes] == [0]


def test_a_task_waits_for_those_that_it_builds_on(tmp_path):
    first, second = tasks_of(tmp_path, second="works", first="works")
    tasks = [ScheduledTask(first.name, first.argument, after=("first",)), second]
    run_in_processes(tasks, worker_tasks.work, 2)
    assert float((tmp_path / "first").read_text()) < float((tmp_path / "second").read_text())


def test_a_task_that_raises_has_failed_and_the_others_go_on(tmp_path):
    tasks = tasks_of(tmp_path, bad="user error", bug="bug", good="works")
    tasks.append(ScheduledTask("waits", ("works", str(tmp_path / "waits")), after=("bad",)))
    results = run_in_processes(tasks, worker_tasks.work, 2)
    assert results["bad"].error == "came\nfix: give something else"
    assert "ZeroDivisionError: a bug" in results["bug"].error
    assert results["waits"].error == "bad failed, and this task depends on it"
    assert results["good"].error is None
    assert not (tmp_path / "waits").exists()


def test_a_worker_that_dies_is_replaced_and_its_task_tried_again(tmp_path):
    results = run_in_processes(tasks_of(tmp_path, a="dies once", b="dies", c="works"), worker_tasks.work, 1)
    assert results["a"].error is None
    assert (tmp_path / "a").exists()
    assert results["b"].error == "its process died 3 times without progress (SIGKILL)"
    assert results["c"].error is None


def test_a_process_whose_gpu_failed_does_no_more_tasks(tmp_path):
    tasks = tasks_of(tmp_path, a="loses its gpu once", b="loses its gpu", c="works")
    said = []
    results = run_in_processes(tasks, worker_tasks.work, 1, log=said.append)
    assert results["a"].error is results["c"].error is None
    assert results["b"].error == "its process died 3 times without progress (CUDA error: unspecified launch failure)"
    for name, tries in (("a", 2), ("b", 3)):
        processes = (tmp_path / f"{name}.tries").read_text().split()
        assert len(set(processes)) == len(processes) == tries
    loss = "its process died (CUDA error: unspecified launch failure); resuming"
    assert said == [f"a: {loss} (try 2 of 3)", f"b: {loss} (try 2 of 3)", f"b: {loss} (try 3 of 3)"]


def test_a_task_that_comes_further_each_time_is_tried_as_often_as_it_takes(tmp_path):
    results = run_in_processes(tasks_of(tmp_path, a="loses its gpu further on"), worker_tasks.work, 1)
    assert results["a"].error is None
    assert (tmp_path / "a.tries").read_text() == "xxxxx"


def test_who_finds_no_memory_beside_others_is_tried_again_among_fewer(tmp_path):
    said = []
    first, last = "finds no memory at first", "works when others found no memory"
    results = run_in_processes(tasks_of(tmp_path, a=first, b=first, c=last), worker_tasks.work, 3, log=said.append)
    assert {result.error for result in results.values()} == {None}
    assert sorted(line[:1] for line in said) == ["a", "b"]
    tried = "out of memory beside other tasks; retrying with"
    assert [line[3:] for line in said] == [f"{tried} {count} at a time" for count in (2, 1)]


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError(), "CUDA error: out of memory"])
def test_memory_that_is_full_outside_of_training_is_known_as_such(error):
    def work(argument, on_share):
        raise torch.AcceleratorError(error) if isinstance(error, str) else error

    end = run_task(work, None, lambda share: None)
    assert end.is_out_of_memory
    assert "in work" in end.error


@pytest.mark.parametrize("kind", ["works", "user error", "bug"])
def test_a_gpus_memory_is_given_back_after_each_task(kind, tmp_path, monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    end = run_task(worker_tasks.work, (kind, str(tmp_path / "task")), lambda share: None)
    assert (end.error is None) == (kind == "works")
    assert emptied


def test_a_gpu_that_fails_when_its_memory_is_given_back_has_failed(tmp_path, monkeypatch):
    def fails():
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", fails)
    with refused("device-lost", "unspecified launch failure", by=DeviceLost):
        run_task(worker_tasks.work, ("bug", str(tmp_path / "task")), lambda share: None)


def test_a_library_s_warning_in_a_worker_is_a_line_of_the_log_and_told_once(tmp_path):
    lines = []
    tasks = [ScheduledTask(name, ("warns", str(tmp_path / name))) for name in ("a", "b")]
    run_in_processes(tasks, worker_tasks.work, 1, log=lines.append)
    assert lines == ["UserWarning: the same in every worker"]


PROGRAM = """
import sys
import worker_tasks
from headstart.study.execution.scheduler import ScheduledTask
from headstart.study.execution.workers import Interrupted, run_in_processes
try:
    run_in_processes([ScheduledTask("a", ("sleeps", sys.argv[1] + "/a"))], worker_tasks.work, 1)
except Interrupted as error:
    sys.exit(error.exit_code)
"""


def started(directory):
    paths = [str(Path(worker_tasks.__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, str(directory)], env=environment)
    deadline = time.monotonic() + 60
    pid = directory / "a.pid"
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return parent, int(pid.read_text())


def test_workers_die_with_whoever_started_them(tmp_path):
    parent, worker = started(tmp_path)
    parent.kill()
    parent.wait()
    assert is_gone(worker)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can kill with the parent")
def test_workers_that_are_stopped_die_too_and_let_go_of_what_they_had_locked(tmp_path):
    parent, worker = started(tmp_path)
    os.kill(worker, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    assert is_gone(worker)


def test_a_signal_stops_all_workers_and_is_the_exit_code(tmp_path):
    parent, worker = started(tmp_path)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(30) == 143
    assert is_gone(worker)
