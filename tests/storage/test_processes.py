"""Forked processes import nothing that lies in the current directory."""

import os
import subprocess
import sys
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


@pytest.mark.parametrize("program", [STUDY, SELFTEST], ids=["study", "selftest"])
def test_what_lies_in_the_current_directory_is_not_imported(program, tmp_path):
    here, script = tmp_path / "here", tmp_path / "elsewhere" / "script.py"
    for path, text in ((here / "headstart.py", "X = 1"), (here / "random.py", "X = 1"), (script, program)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(worker_tasks.__file__).parent)}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run([sys.executable, script], cwd=here, env=environment, capture_output=True, text=True)
    assert done.stdout == "None\n", done.stderr
