"""A study over Ray is the same study: the same study.json as with --jobs, whoever is killed meanwhile."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_study import MODEL, small_config, write_files

from headstart.cli.main import run as headstart
from headstart.config.toml import to_toml

TESTS = str(Path(__file__).parent.parent)


def environment():
    return {**os.environ, "PYTHONPATH": TESTS, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def started(directory, *words):
    """`headstart study STUDY.toml` in a process of its own, in `directory`."""
    command = [sys.executable, "-m", "headstart", "study", "STUDY.toml", "--json", *words]
    return subprocess.Popen(
        command, cwd=directory, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kill_workers(study, out, count):
    """SIGKILL to whoever holds the lock of a run, once it has begun to train; `count` runs, one after the other."""
    killed = set()
    while len(killed) < count and study.poll() is None:
        for lock in [*out.glob("pretrain/*/lock"), *out.glob("trials/*/*/lock")]:
            metrics = lock.parent / "metrics.jsonl"
            if lock.parent in killed or not metrics.exists() or (lock.parent / "result.json").exists():
                continue
            with contextlib.suppress(ValueError, ProcessLookupError):
                os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
                killed.add(lock.parent)
        time.sleep(0.005)
    return killed


@pytest.mark.slow
def test_ray_gives_the_same_study_json_as_jobs_also_when_workers_are_killed(tmp_path):
    config = small_config(write_files(tmp_path / "files"), arms=["tfidf", "scratch", "finetuned"], budgets=[10])
    (tmp_path / "STUDY.toml").write_text(to_toml({**dataclasses.asdict(config), "model": MODEL}))
    plain = started(tmp_path, "--out", "plain", "--jobs", "2")
    _, err = plain.communicate(timeout=300)
    assert plain.returncode == 0, err
    study = started(tmp_path, "--out", "ray", "--jobs", "2", "--engine", "ray")
    killed = kill_workers(study, tmp_path / "ray", 3)
    out, err = study.communicate(timeout=300)
    assert study.returncode == 0, err
    assert json.loads(out)["report"] == "ray/report.html"  # and nothing else: Ray's words are on standard error
    assert "A worker died or was killed" in err
    assert len(killed) == 3
    assert (tmp_path / "ray" / "study.json").read_bytes() == (tmp_path / "plain" / "study.json").read_bytes()


NODES = """
import sys
import threading
import time
from pathlib import Path
import worker_tasks
from headstart.study.execution.ray_workers import TaskResources, run_on_ray
from headstart.study.execution.scheduler import ScheduledTask
from ray.cluster_utils import Cluster

directory = Path(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)

def lose_a_node():
    while len(list(directory.glob("*.node"))) < 2:
        time.sleep(0.05)
    time.sleep(0.2)
    found = [path.read_text().split() for path in directory.glob("*.node")]
    assert len({node for node, _ in found}) == 2
    cluster.remove_node(second, allow_graceful=False)
    while all(Path("/proc", worker).exists() for _, worker in found):  # it ends with its node, but not at once
        time.sleep(0.05)
    (directory / "go").write_text("")

threading.Thread(target=lose_a_node).start()
tasks = [ScheduledTask(name, ("waits", str(directory / name))) for name in ("a", "b")]
tasks += [ScheduledTask(name, ("works", str(directory / name))) for name in ("c", "d")]
found = run_on_ray(tasks, worker_tasks.work, None, resources=TaskResources(1), address=cluster.address)
assert [found[name].error for name in "abcd"] == [None] * 4, found
assert (directory / "a.tries").read_text() + (directory / "b.tries").read_text() == "xxx"  # one of them twice
cluster.shutdown()
"""


@pytest.mark.slow
def test_a_node_that_is_lost_costs_nothing_but_time(tmp_path):
    """Two tasks wait, one on each node of a running cluster; a node is killed, and all are done on the other."""
    done = subprocess.run(
        [sys.executable, "-c", NODES, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / name).exists() for name in "abcd")


def test_without_the_extra_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code = headstart(["study", "--demo", "plain", "--engine", "ray", "--out", str(tmp_path / "s")])
    assert code == 2
    assert "pip install 'headstart[ray]'" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ray-address", "10.0.0.1:6379"], "--ray-address without --engine=ray"),
        (["--engine", "ray", "--ray-address", "127.0.0.1:9"], "no Ray cluster answers at 127.0.0.1:9"),
        (["--engine", "ray", "--ray-address", "ray://127.0.0.1:9"], "is not HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_used_is_exit_2_before_any_work(words, said, tmp_path, capsys):
    if "--engine" in words and not importlib.util.find_spec("ray"):
        pytest.skip("the extra ray is not installed")
    code = headstart(["study", "--demo", "plain", *words, "--out", str(tmp_path / "s")])
    assert code == 2
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "s").exists()
