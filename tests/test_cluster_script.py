"""The Slurm script of the guide, run with stand-ins for Slurm and torchrun."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headstart.cli.main import VERBS

GUIDE = Path(__file__).parent.parent / "docs" / "guide.md"

SLURM = {
    "srun": 'exec "$@"',
    "scontrol": 'if [ "$1" = show ]; then echo node-1; echo node-2; else echo "$@" >> requeued; fi',
    # As torchrun: it passes the signal on, the ranks take a while to save, and it leaves with 1.
    "torchrun": (
        'echo "$@" > command\n'
        "trap 'sleep 0.3; echo saved > saved; exit '\"$STOPPED\" TERM\n"
        'if [ "$SECONDS_OF_WORK" = forever ]; then echo $$ > started; while :; do sleep 0.05; done; fi\n'
        'exit "$FINISHED"'
    ),
}


@pytest.fixture
def script(tmp_path):
    """The block of the guide as a file, in a directory where Slurm's commands are found."""
    section = GUIDE.read_text().split("## On a cluster")[1].split("\n## ")[0]
    blocks = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", section, flags=re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "job.sh").write_text(blocks[0])
    for name, body in SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path / "job.sh"


def started(script, finished=0, stopped=1, work="none"):
    return subprocess.Popen(
        ["bash", script.name], cwd=script.parent,
        env={
            "PATH": f"{script.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "31234", "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_NODELIST": "node-[1-2]", "FINISHED": str(finished), "STOPPED": str(stopped),
            "SECONDS_OF_WORK": work,
        },
    )  # fmt: skip


def test_it_is_bash(script):
    assert subprocess.run(["bash", "-n", script]).returncode == 0


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_run_that_ends_by_itself_is_not_queued_again(script, code):
    assert started(script, finished=code).wait(20) == code
    assert not (script.parent / "requeued").exists()
    words = (script.parent / "command").read_text()
    assert "--nnodes=2" in words
    assert "--rdzv-endpoint=node-1:21234" in words
    assert "-m headstart pretrain" in words


@pytest.mark.parametrize(("code", "requeued"), [(1, True), (0, False)], ids=["saved", "finished meanwhile"])
def test_asked_to_stop_it_is_queued_again_once_all_is_saved(script, code, requeued):
    job = started(script, stopped=code, work="forever")
    deadline = time.monotonic() + 20
    while not (script.parent / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(20) == code
    assert (script.parent / "saved").exists()
    assert (script.parent / "requeued").exists() == requeued
    if requeued:
        assert (script.parent / "requeued").read_text() == "requeue 31234\n"


def test_the_command_in_it_is_one_that_headstart_has(script):
    words = script.read_text().replace("\\\n", " ").split("-m headstart ")[1].split("&")[0].split()
    assert words[0] in VERBS
    help_text = subprocess.run(
        [sys.executable, "-m", "headstart", words[0], "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(word in help_text for word in words if word.startswith("--"))
