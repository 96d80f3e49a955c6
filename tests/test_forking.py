"""What lies in the current directory is nobody's module, wherever processes are forked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import study_work

STUDY = """
import study_work
from headstart.study.agenda import Task
from headstart.study.workers import carry_out
print(carry_out([Task("a", ("works", "done"))], study_work.work, 1)["a"].error)
"""
SELFTEST = """
from headstart.plan.free_memory import free_bytes
from headstart.training import selftest
if __name__ == "__main__":
    selftest._start_nursery()
    child = selftest._CHILDREN.Process(target=free_bytes)
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
    environment = {**os.environ, "PYTHONPATH": str(Path(study_work.__file__).parent)}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run([sys.executable, script], cwd=here, env=environment, capture_output=True, text=True)
    assert done.stdout == "None\n", done.stderr
