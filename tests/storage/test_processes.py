"""Forked processes import nothing that lies in the current directory, and end with who started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import worker_tasks

STUDY = """
import worker_tasks
from headstart.study.execution.scheduler import ScheduledTask
from headstart.study.execution.workers import run_in_processes
print(run_in_processes([ScheduledTask("a", ("works", "done"))], worker_tasks.work, 1)["a"].error)
"""
SELFTEST = """
from headstart.hardware import free_bytes
from headstart.training.tasks import selftest
if __name__ == "__main__":
    selftest._start_forkserver()
    child = selftest._FORKSERVER.Process(target=free_bytes)
    child.start()
    child.join()
    print(child.exitcode or None)
"""


@pytest.mark.parametrize("program", [STUDY, pytest.param(SELFTEST, marks=pytest.mark.slow)], ids=["study", "selftest"])
def test_what_lies_in_the_current_directory_is_not_imported(program, tmp_path):
    here, script = tmp_path / "here", tmp_path / "elsewhere" / "script.py"
    for path, text in ((here / "headstart.py", "X = 1"), (here / "random.py", "X = 1"), (script, program)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(worker_tasks.__file__).parent)}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run([sys.executable, script], cwd=here, env=environment, capture_output=True, text=True)
    assert done.stdout == "None\n", done.stderr


# A process that starts a child, tells its pid and waits; the child says when it is ready, and does nothing more.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
DIES = """
import time
from headstart.storage.processes import die_with_parent
die_with_parent()
print(1, flush=True)
time.sleep(99)
"""
STOPS = """
import signal, time
from headstart.storage import processes
processes.WATCH_SECONDS, processes.GRACE_SECONDS = 0.05, %s
signal.signal(signal.SIGTERM, %s)
with processes.stopped_with_parent():
    print(1, flush=True)
    time.sleep(99)
"""


def orphan(program):
    """The pid of a child that loses its parent."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, program], stdout=subprocess.PIPE, text=True)
    return parent, int(parent.stdout.readline())


def is_gone(pid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can kill with the parent")
def test_a_child_that_is_stopped_dies_with_its_parent():
    parent, child = orphan(DIES)
    os.kill(child, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    assert is_gone(child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize(("grace", "handler"), [(60, "signal.SIG_DFL"), (0.05, "signal.SIG_IGN")])
def test_a_child_is_asked_to_stop_when_its_parent_has_ended_and_is_ended_if_it_does_not(grace, handler):
    parent, child = orphan(STOPS % (grace, handler))
    parent.kill()
    parent.wait()
    assert is_gone(child)
