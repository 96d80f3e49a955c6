"""What stands behind standard output, and the limits of a shell: a code of the contract, and never a traceback."""

import json
import os
import subprocess
import sys

import commands
import forked
import pytest
from commands import Workspace

from headstart.cli.main import run

PLAN = f"{sys.executable} -m headstart plan --preset lab --vocab 100"


def shell(line, **environment):
    """The exit code of the line in a shell, and what it printed."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env={**os.environ, **environment})
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("flag", ["", "--json"])
def test_a_full_disk_behind_standard_output_is_try_again(flag):
    done = shell(f"{PLAN} {flag} > /dev/full")
    assert (done.returncode, "headstart [disk-full]: " in done.stderr, "fix:" in done.stderr) == (75, True, True)


@pytest.mark.parametrize("flag", ["", "--json"])
def test_a_pipe_that_is_closed_is_the_end_and_no_error(flag):
    read, write = os.pipe()
    os.close(read)  # the reader has gone before anything is written
    done = subprocess.run([*PLAN.split(), *flag.split()], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_what_a_terminal_cannot_show_is_escaped_and_changes_no_exit_code(tmp_path):
    done = shell(PLAN, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u" in done.stdout
    path = tmp_path / "été 😀.csv"
    path.write_text("text,label\n" + "".join(f"row {i},{'no' if i % 2 else 'yes'}\n" for i in range(9)))
    told = f"{sys.executable} -m headstart data check --train '{path}' --json"
    plain, escaped = shell(told), shell(told, PYTHONIOENCODING="ascii")
    assert escaped.stdout.isascii()
    assert (escaped.returncode, json.loads(escaped.stdout)) == (plain.returncode, json.loads(plain.stdout))


# ---- limits -------------------------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path).fill()


FEW_FILES = """
import os, resource, sys
from headstart.cli.main import run
import headstart.training.tasks.pretrain
free = os.dup(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, free + 1))
os.close(free)
sys.exit(run(sys.argv[1:]))
"""

LITTLE_MEMORY = """
import pathlib, resource, sys
from headstart.cli.main import run
import headstart.training.tasks.pretrain, torch._dynamo
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, used + 2**27))
sys.exit(run(sys.argv[1:]))
"""


def test_too_few_files_at_once_is_try_again(workspace):
    assert workspace.run_to_the_end(program=FEW_FILES) == 75, workspace.log.read_text()
    assert "ulimit -n" in workspace.log.read_text()
    assert workspace.run_to_the_end() == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="only Linux tells how much memory is mapped")
def test_memory_that_numpy_does_not_get_is_try_again(workspace):
    words = ["100000000" if word == "96" else word for word in workspace.command()]  # the batch
    environment = {"HEADSTART_CACHE": str(workspace.cache)}
    code = forked.run(LITTLE_MEMORY, *words, output=workspace.log, environment=environment)
    assert code == 75, workspace.log.read_text()
    assert "[memory-full]" in workspace.log.read_text()
    assert workspace.run_to_the_end() == 0


@pytest.mark.parametrize("text", ["could not create a primitive", "std::bad_alloc"])
def test_memory_that_a_library_does_not_get_in_a_step_is_try_again(workspace, monkeypatch, capsys, text):
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))

    def fail(*arguments):
        raise RuntimeError(text)

    monkeypatch.setattr("headstart.training.loop.Step.forward_backward", fail)
    answer = commands.invoke(capsys, workspace.command())
    assert (answer.code, "headstart [memory-full]: " in answer.err) == (75, True), answer.err


def test_an_error_of_ours_is_no_lack_of_memory(monkeypatch):
    def fail(arguments):
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr("headstart.cli.main._answer", fail)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run(["plan"])
