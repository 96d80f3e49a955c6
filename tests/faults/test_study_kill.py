"""Kill a study at random moments: the same command goes on to the same study.json."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_study import MODEL, small_config, write_files

from headstart.study.study import study as run_study

PROGRAM = """
import sys
from pathlib import Path
from small_study import MODEL, files_in, small_config
from headstart.study.study import study as run_study
run_study(small_config(files_in(Path(sys.argv[1])), **CHANGES), out=sys.argv[2], model=MODEL, jobs=2)
"""
CHANGES = {"arms": ["tfidf", "lsa", "scratch", "finetuned", "combined"], "budgets": [10], "seeds": 2}


def started(files, out):
    paths = [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    program = PROGRAM.replace("**CHANGES", ", ".join(f"{key}={value!r}" for key, value in CHANGES.items()))
    return subprocess.Popen([sys.executable, "-c", program, files, out], env=environment, start_new_session=True)


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [True, False], ids=["with its workers", "alone"])
def test_killed_again_and_again_it_ends_with_the_same_study_json(tmp_path, whole_group):
    files = write_files(tmp_path / "files")
    run_study(small_config(files, **CHANGES), out=tmp_path / "whole", model=MODEL, jobs=2)
    out, rng, kills = tmp_path / "killed", random.Random(f"study {whole_group}"), 0
    while True:
        study = started(str(tmp_path / "files"), str(out))
        try:
            assert study.wait(rng.uniform(3.0, 8.0) if kills < 5 else 300) == 0
            break
        except subprocess.TimeoutExpired:
            kills += 1
            if whole_group:
                os.killpg(study.pid, signal.SIGKILL)
            else:
                study.kill()
            study.wait()
    assert kills > 0
    assert (out / "study.json").read_bytes() == (tmp_path / "whole" / "study.json").read_bytes()


@pytest.mark.slow
def test_asked_to_stop_it_saves_and_leaves_with_the_signals_code(tmp_path):
    files = write_files(tmp_path / "files")
    run_study(small_config(files, **CHANGES), out=tmp_path / "whole", model=MODEL, jobs=2)
    study = started(str(tmp_path / "files"), str(tmp_path / "stopped"))
    deadline = time.monotonic() + 120
    while not (tmp_path / "stopped" / "pretrain").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    study.send_signal(signal.SIGTERM)
    assert study.wait(120) == 1  # the program has no command line to turn the error into 143
    assert started(str(tmp_path / "files"), str(tmp_path / "stopped")).wait(300) == 0
    assert (tmp_path / "stopped" / "study.json").read_bytes() == (tmp_path / "whole" / "study.json").read_bytes()
