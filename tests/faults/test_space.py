"""Where a run cannot be written, or not all of it, or not by two at once: known early, said with numbers."""

import contextlib
import errno
import json
import os
import re
import subprocess
from collections import namedtuple

import commands
import forked
import pytest
import small
from commands import Workspace, run_files, steps_logged, wait_until
from expected_errors import refused

from headstart.runs import checkpoint
from headstart.storage import locks
from headstart.storage.locks import run_lock
from headstart.training import fit


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    return workspace


@pytest.fixture
def invoke(capsys):
    return lambda command: commands.invoke(capsys, command)


# ---- disk and memory --------------------------------------------------------------------------------------


def bytes_needed(parameters, keep):
    """fp32: weights and two moments in each checkpoint that is kept and in one more, and the weights at last."""
    return 4 * parameters * (3 * (keep + 1) + 1)


def test_a_disk_too_small_is_refused_before_the_first_step(workspace, invoke, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(fit.shutil, "disk_usage", lambda path: usage(1000))
    answer = invoke(workspace.command("--keep", 3))
    assert answer.code == 75
    assert not (workspace.run / "metrics.jsonl").exists()
    assert not (workspace.run / "checkpoints").exists()
    monkeypatch.undo()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    parameters = json.loads(invoke([*workspace.command("--keep", 3), "--json"]).out)["parameters"]
    assert f"{bytes_needed(parameters, 3):,} bytes are needed" in answer.err
    assert "1,000 are free" in answer.err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_really_small_disk_is_refused_before_the_first_step(workspace, invoke):
    mount = workspace.path / "mounted"
    with mounted(mount, "size=200k"):
        answer = invoke(workspace.command("--out", mount / "run"))
        left = list(mount.iterdir())
    assert answer.code == 75
    assert "are free" in answer.err
    assert not left


@contextlib.contextmanager
def mounted(path, options):
    """A disk of our own, in memory."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this machine does not let tests mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_finished_run_that_cannot_be_extended_stays_finished(workspace, invoke, monkeypatch):
    assert invoke(workspace.command()).code == 0
    before = run_files(workspace.run)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(fit.shutil, "disk_usage", lambda path: usage(1000))
    assert invoke(workspace.command("--steps", 9)).code == 75
    assert invoke(workspace.command()).code == 0
    assert run_files(workspace.run) == before


FULL_AFTER_THE_FIRST_SAVE = """
import resource, signal, sys
from headstart.cli.main import run
from headstart.runs import checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
write = checkpoint.write_tensors
def limited(path, tensors):
    if (path.parent.parent / "step-00000002").exists():
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    write(path, tensors)
checkpoint.write_tensors = limited
sys.exit(run(sys.argv[1:]))
"""


def test_a_disk_that_fills_up_keeps_the_last_checkpoint_and_the_run_goes_on_later(workspace):
    peaceful = workspace.path / "peaceful"
    assert workspace.run_to_the_end("--out", peaceful) == 0
    assert workspace.run_to_the_end(program=FULL_AFTER_THE_FIRST_SAVE) == 75, workspace.log.read_text()
    assert re.search(r"needs [\d,]+ bytes, [\d,]+ bytes are free", workspace.log.read_text())
    assert checkpoint.latest(workspace.run / "checkpoints")[0].step == 2
    assert list(workspace.run.rglob(".*")) == []
    assert workspace.run_to_the_end() == 0
    assert run_files(workspace.run) == run_files(peaceful)


HALF_A_LINE = """
import json, pathlib, resource, signal, sys
from headstart.runs.directory import MetricsFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
said, (soft, hard) = [], resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (110, hard))
metrics = MetricsFile(pathlib.Path(sys.argv[1]), said.append)
for step in range(9):
    metrics.write(step=step, loss=1.5)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print(*said)
"""


def test_a_log_that_cannot_be_written_ends_with_a_whole_line(tmp_path):
    assert forked.run(HALF_A_LINE, tmp_path / "metrics.jsonl", output=tmp_path / "said") == 0
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2, 3]
    assert (tmp_path / "said").read_text().count("cannot be written") == 1


MEMORY_FULL = """
import pathlib, resource, sys
sys.path.insert(0, sys.argv[2])
import small, torch._dynamo  # the optimizers import it on first use, and it is large
from headstart.training.fit import Console, Session, TrainingTask, fit
from headstart.config.run import DataConfig, RunConfig
from headstart.config.training import Masking
from headstart.runs.directory import RunDirectory
pathlib.Path(sys.argv[1]).mkdir()
made = small.training(pathlib.Path(sys.argv[1]), model={"ffn": 2_000_000, "depth": 1})
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
config = RunConfig(
    objective="causal", frame="causal", length=24, batch=4, data=DataConfig(), model=made.model.config,
    head=made.objective.head, optimizer=made.optimizer, loop=made.loop, masking=Masking(),
)
try:
    task = TrainingTask(config, small.tokenizer(), made.model, made.objective, None)
    fit(task, Session(RunDirectory(sys.argv[1]), made.machine, Console(print)))
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(getattr(error, "exit_code", 99))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="only Linux tells how much memory is mapped")
def test_memory_that_does_not_suffice_is_try_again_with_numbers(tmp_path):
    tests = os.path.dirname(small.__file__)
    code = forked.run(MEMORY_FULL, tmp_path / "run", tests, output=tmp_path / "said")
    said = (tmp_path / "said").read_text()
    assert code == 75, said
    assert re.search(r"take [\d,]{11,} bytes, .*[\d,]+ ", said)


# ---- directories that cannot be written to ---------------------------------------------------------------------


def test_a_path_below_a_file_is_refused_before_data_is_read(workspace, invoke):
    (workspace.path / "file").write_text("")
    (workspace.path / "corpus.txt").unlink()
    answer = invoke(workspace.command("--out", workspace.path / "file/run"))
    assert answer.code == 2
    assert f"headstart [no-file]: {workspace.path / 'file/run'}" in answer.err.replace("\n", "")
    assert "corpus" not in answer.err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_directory_is_refused_before_data_is_read(workspace, invoke):
    mount = workspace.path / "mounted"
    (workspace.path / "corpus.txt").unlink()
    with mounted(mount, "ro"):
        answer = invoke(workspace.command("--out", mount / "run"))
    assert answer.code == 2
    assert "headstart [no-file]: " in answer.err
    assert os.strerror(errno.EROFS) in answer.err
    assert "corpus" not in answer.err


def test_a_missing_parent_is_made(workspace, invoke):
    assert invoke(workspace.command("--steps", 1, "--out", workspace.path / "a/b/run")).code == 0


# ---- two at once ------------------------------------------------------------------------------------------


def test_a_second_run_in_the_directory_is_refused_with_who_holds_it(workspace, invoke):
    command = workspace.command("--steps", 4000)
    child = workspace.start("--steps", 4000)
    try:
        wait_until(lambda: steps_logged(workspace.run) > 2, child)
        answer = invoke(command)
        assert answer.code == 2
        assert "headstart [in-use]: " in answer.err
        assert re.search(rf"pid {child.pid} since \d{{4}}-", answer.err)
    finally:
        child.kill()
        child.join()  # the system lets go of the lock
    refused = invoke([*command, "--seed", "1"])
    assert "loop.seed was 0, is 1" in refused.err  # it got as far as the settings


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def none(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    with refused("unsupported", str(tmp_path)), run_lock(tmp_path):
        pass


def test_a_lock_needs_no_space_on_the_disk(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(locks.os, "write", full)
    with run_lock(tmp_path), refused("in-use", str(tmp_path)), run_lock(tmp_path):
        pass
