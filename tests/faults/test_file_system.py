"""File systems that cannot flush or rename: refused before the first step, or used as asked and said so."""

import errno
import os

import commands
import pytest
from commands import Workspace, run_files

from headstart.runs import checkpoint

ERRORS = [errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL]
UNSAFE = ("--unsafe-fs", None)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    return workspace


@pytest.fixture
def invoke(capsys):
    return lambda command: commands.invoke(capsys, command)


@pytest.fixture
def take_away(workspace, monkeypatch):
    """Take a call away from the run's directory, as a poor file system does."""
    replace, fsync = os.replace, os.fsync

    def is_of_the_run(path):
        return str(path).startswith(str(workspace.run))

    def no_replace(source, target):
        if is_of_the_run(target):
            raise OSError(code, os.strerror(code))
        replace(source, target)

    def no_fsync(descriptor):
        if is_of_the_run(os.readlink(f"/proc/self/fd/{descriptor}")):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    code = errno.ENOSYS

    def take(call, number=errno.ENOSYS):
        nonlocal code
        code = number
        monkeypatch.setattr(os, call, {"replace": no_replace, "fsync": no_fsync}[call])

    return take


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
@pytest.mark.parametrize("code", ERRORS, ids=[errno.errorcode[code] for code in ERRORS])
@pytest.mark.parametrize(("call", "word"), [("replace", "rename"), ("fsync", "flush")])
def test_it_is_refused_before_the_first_step_and_the_way_out_is_named(
    workspace, invoke, take_away, call, word, code, verb
):
    take_away(call, code)
    answer = invoke(workspace.command(verb=verb))
    assert answer.code == 2
    assert "headstart [unsupported]: " in answer.err
    assert f"{word} ({os.strerror(code)})" in answer.err
    assert "--unsafe-fs" in answer.err
    assert not (workspace.run / "metrics.jsonl").exists()
    assert list(workspace.run.glob(".tmp-*")) == []


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
@pytest.mark.parametrize("calls", [("replace",), ("fsync",), ("replace", "fsync")])
def test_asked_to_it_writes_the_same_run_and_says_so_once(workspace, invoke, take_away, calls, verb):
    assert invoke(workspace.command(verb=verb)).code == 0
    workspace.run.rename(workspace.path / "peaceful")
    for call in calls:
        take_away(call)
    answer = invoke(workspace.command(*UNSAFE, verb=verb))
    assert answer.code == 0, answer.err
    assert answer.err.count("as asked, files are written without") == 1
    assert run_files(workspace.run) == run_files(workspace.path / "peaceful")
    assert list(workspace.run.rglob(".*")) == []
    assert checkpoint.latest(workspace.run / "checkpoints")[0].step == commands.STEPS


def test_asked_to_it_goes_on_where_it_was(workspace, invoke, take_away):
    assert invoke(workspace.command("--steps", 3)).code == 0
    take_away("replace")
    assert invoke(workspace.command(*UNSAFE)).code == 0  # replaces files, and a checkpoint of the same step
    assert checkpoint.latest(workspace.run / "checkpoints")[0].step == commands.STEPS


def test_where_nothing_lacks_the_flag_changes_nothing_and_says_nothing(workspace, invoke):
    answer = invoke(workspace.command(*UNSAFE))
    assert answer.code == 0
    assert "file system" not in answer.err


def test_another_error_of_the_disk_is_still_that_error(workspace, invoke, take_away):
    take_away("replace", errno.ENOSPC)
    answer = invoke(workspace.command(*UNSAFE))
    assert answer.code == 75
    assert "headstart [disk-full]: " in answer.err


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_disk_that_fails_is_try_again(workspace, invoke, take_away, call):
    take_away(call, errno.EIO)
    answer = invoke(workspace.command())
    assert (answer.code, "headstart [try-again]: " in answer.err) == (75, True), answer.err
    assert str(workspace.run) in answer.err.replace("\n", "")


def test_what_cannot_be_renamed_is_copied_and_that_is_renamed(workspace, invoke, monkeypatch):
    """As in a container, whose directories are on another file system until they are written to."""
    assert invoke(workspace.command()).code == 0
    peaceful = run_files(workspace.run)
    replace, crossed = os.replace, set()

    def once(source, target):
        if target not in crossed:
            crossed.add(target)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        replace(source, target)

    monkeypatch.setattr(os, "replace", once)
    again = workspace.path / "again"
    answer = invoke(workspace.command("--out", again))
    assert answer.code == 0, answer.err
    assert crossed
    assert run_files(again) == peaceful
    assert list(again.rglob(".*")) == []
    assert checkpoint.latest(again / "checkpoints")[0].step == commands.STEPS


def test_where_a_copy_cannot_be_renamed_either_the_way_out_is_named(workspace, invoke, take_away):
    take_away("replace", errno.EXDEV)
    answer = invoke(workspace.command())
    assert (answer.code, "--unsafe-fs" in answer.err) == (2, True)
    assert list(workspace.run.glob(".tmp-*")) == []
