"""The contract of tests/study/execution/test_workers.py, on a Ray of one machine with two workers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import worker_tasks
from expected_errors import refused
from worker_tasks import is_gone

from headstart.study.execution import ray_workers
from headstart.study.execution.ray_workers import TaskResources, cluster, run_on_ray
from headstart.study.execution.scheduler import ScheduledTask

TESTS = str(Path(worker_tasks.__file__).parent)
ONE_CORE = TaskResources(1)


@pytest.fixture(scope="module")
def ray():
    """A Ray with two cores, which everything in this process then uses."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", TESTS)
        with cluster(None, ONE_CORE, 2) as found:
            yield found
    assert signal.getsignal(signal.SIGTERM) is before
    assert not found.is_initialized()


def tasks_of(directory, **kinds):
    return [ScheduledTask(name, (kind, str(directory / name))) for name, kind in kinds.items()]


@pytest.mark.slow
def test_every_task_is_done_and_told_of(ray, tmp_path):
    heard, shares = [], []
    tasks = tasks_of(tmp_path, shown="shows", **{f"t{number}": "works" for number in range(4)})
    results = run_on_ray(
        tasks, worker_tasks.work, 2, resources=ONE_CORE,
        on_result=lambda result: heard.append(result.name), on_share=lambda *share: shares.append(share),
    )  # fmt: skip
    assert {name: result.error for name, result in results.items()} == dict.fromkeys(heard)
    assert sorted(heard) == ["shown", *(f"t{number}" for number in range(4))]
    assert all((tmp_path / name).exists() for name in heard)
    assert results["shown"].seconds > 0.9
    assert {name for name, _ in shares} >= {"shown"}
    assert {share for name, share in shares if name == "shown"} & {0.6, 0.7, 0.8}


@pytest.mark.slow
def test_a_task_waits_for_those_that_it_builds_on(ray, tmp_path):
    first, second = tasks_of(tmp_path, second="works", first="works")
    tasks = [ScheduledTask(first.name, first.argument, after=("first",)), second]
    run_on_ray(tasks, worker_tasks.work, 2, resources=ONE_CORE)
    assert float((tmp_path / "first").read_text()) < float((tmp_path / "second").read_text())


@pytest.mark.slow
def test_a_task_that_raises_has_failed_and_the_others_go_on(ray, tmp_path):
    tasks = tasks_of(tmp_path, bad="user error", bug="bug", good="works")
    tasks.append(ScheduledTask("waits", ("works", str(tmp_path / "waits")), after=("bad",)))
    results = run_on_ray(tasks, worker_tasks.work, None, resources=ONE_CORE)
    assert results["bad"].error == "came\nfix: give something else"
    assert "ZeroDivisionError: a bug" in results["bug"].error
    assert results["waits"].error == "bad failed, and this task depends on it"
    assert results["good"].error is None
    assert not (tmp_path / "waits").exists()


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_task_tried_again(ray, tmp_path, capsys):
    tasks = tasks_of(tmp_path, a="dies once", b="dies", c="works")
    results = run_on_ray(tasks, worker_tasks.work, 1, resources=ONE_CORE)
    assert results["a"].error is None
    assert (tmp_path / "a").exists()
    assert results["b"].error.startswith("its process died 3 times without progress (The worker died unexpectedly")
    assert results["c"].error is None


@pytest.mark.slow
def test_a_process_whose_gpu_failed_does_no_more_tasks(ray, tmp_path):
    tasks = tasks_of(tmp_path, a="loses its gpu once", b="works")
    results = run_on_ray(tasks, worker_tasks.work, 1, resources=ONE_CORE)
    assert results["a"].error is results["b"].error is None
    assert len(set((tmp_path / "a.tries").read_text().split())) == 2


@pytest.mark.slow
def test_who_finds_no_memory_beside_others_is_tried_again_among_fewer(ray, tmp_path):
    said = []
    (tmp_path / "c.begun").write_text("")  # the third that they wait for
    tasks = tasks_of(tmp_path, a="finds no memory at first", b="finds no memory at first")
    results = run_on_ray(tasks, worker_tasks.work, 2, resources=ONE_CORE, log=said.append)
    assert results["a"].error is results["b"].error is None
    assert sorted(line[:1] for line in said) == ["a", "b"]
    assert all(line.endswith("retrying with 1 at a time") for line in said)


@pytest.mark.slow
def test_a_worker_in_a_directory_or_with_versions_of_its_own_refuses(ray, tmp_path, monkeypatch):
    directory = tmp_path / "gone"
    directory.mkdir()
    monkeypatch.chdir(directory)
    directory.rmdir()
    monkeypatch.setattr(os, "getcwd", lambda: str(directory))
    results = run_on_ray(tasks_of(tmp_path, a="works"), worker_tasks.work, 1, resources=ONE_CORE)
    assert "does not see the directory of the study" in results["a"].error
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_workers, "_versions", lambda: {"headstart": "0", "torch": "1.0", "numpy": "0"})
    results = run_on_ray(tasks_of(tmp_path, a="works"), worker_tasks.work, 1, resources=ONE_CORE)
    assert "and the study was started with 0\nfix: install the same versions" in results["a"].error


@pytest.mark.slow
def test_a_trial_that_no_node_has_room_for_is_refused_instead_of_waiting_for_ever(ray, tmp_path):
    with refused("bad-value", "64 cores", "--threads") as caught:
        run_on_ray(tasks_of(tmp_path, a="works"), worker_tasks.work, 1, resources=TaskResources(64))
    assert "GPU" not in str(caught.value)
    with refused("bad-value", "1 cores", "GPU", "--device=cpu"):
        run_on_ray(tasks_of(tmp_path, a="works"), worker_tasks.work, None, resources=TaskResources(1, 0.25))


PROGRAM = """
import sys
import worker_tasks
from headstart.study.execution.ray_workers import TaskResources, run_on_ray
from headstart.study.execution.scheduler import ScheduledTask
from headstart.study.execution.workers import Interrupted
try:
    tasks = [ScheduledTask(name, ("saves", sys.argv[1] + "/" + name)) for name in ("a", "b", "c")]
    run_on_ray(tasks, worker_tasks.work, 2, resources=TaskResources(1))
except Interrupted as error:
    sys.exit(error.exit_code)
"""


def started(directory):
    """A process with a Ray of its own, both workers of which are at work; and their process ids."""
    environment = {**os.environ, "PYTHONPATH": TESTS}
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, str(directory)], env=environment, start_new_session=True)
    pids = [directory / "a.pid", directory / "b.pid"]
    deadline = time.monotonic() + 120
    while not all(pid.exists() and pid.read_text() for pid in pids) and time.monotonic() < deadline:
        assert parent.poll() is None
        time.sleep(0.02)
    return parent, [int(pid.read_text()) for pid in pids]


@pytest.mark.slow
def test_workers_and_their_ray_die_with_whoever_started_them(tmp_path):
    parent, workers = started(tmp_path)
    parent.kill()
    parent.wait()
    assert all(map(is_gone, workers))


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [True, False], ids=["Ctrl-C, to all", "SIGTERM, to the study"])
def test_asked_to_stop_all_save_before_the_end(tmp_path, whole_group):
    parent, workers = started(tmp_path)
    if whole_group:
        os.killpg(parent.pid, signal.SIGINT)
    else:
        parent.send_signal(signal.SIGTERM)
    assert parent.wait(120) == (130 if whole_group else 143)
    assert (tmp_path / "a.saved").exists()
    assert (tmp_path / "b.saved").exists()
    assert not (tmp_path / "c.pid").exists()
    assert all(map(is_gone, workers))


STRANGER = """
import os
import subprocess
import sys
from headstart.study.execution.ray_workers import TaskResources, cluster
with cluster(None, TaskResources(1), 1) as ray:
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    code = f"from ray._raylet import GcsClient; GcsClient('{ray.get_runtime_context().gcs_address}')"
    print(subprocess.run([sys.executable, "-c", code], env=others, capture_output=True, text=True, timeout=60).stderr)
assert "RAY_AUTH_TOKEN" not in os.environ
"""


@pytest.mark.slow
def test_a_ray_of_its_own_does_not_talk_to_strangers():
    done = subprocess.run([sys.executable, "-c", STRANGER], stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Authentication token is missing or incorrect" in done.stderr  # where a study's standard output goes


def test_nothing_to_do_starts_no_ray(monkeypatch):
    monkeypatch.setattr(ray_workers, "import_ray", lambda address: pytest.fail("Ray was started"))
    assert run_on_ray([], worker_tasks.work, 2, resources=ONE_CORE) == {}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("ray://10.0.0.1:10001", "--ray-address"),
        ("10.0.0.1", "--ray-address"),
        ("127.0.0.1:9", "no Ray cluster"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(address, name):
    with refused("bad-value", address, name, "HOST:PORT", "ray start --head"), cluster(address, ONE_CORE, 1):
        pass
