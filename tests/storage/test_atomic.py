"""A directory that is written whole or not at all, wherever it is asked for and whenever the writer is killed."""

import errno
import signal

import forked
import pytest
import random_runs
from commands import invoke

from headstart.errors import TryAgain, UserError
from headstart.interop.huggingface import export_huggingface
from headstart.storage.atomic import atomic_directory


def test_it_appears_whole_at_the_end(tmp_path):
    with atomic_directory(tmp_path / "a/b", 1) as aside:
        (aside / "file").write_text("x")
        assert not (tmp_path / "a/b").exists()
    assert (tmp_path / "a/b/file").read_text() == "x"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("x"), ValueError),
        (OSError(errno.EACCES, "x"), UserError),
        (OSError(errno.ENOSPC, "x"), TryAgain),
        (OSError(errno.EIO, "x"), TryAgain),
    ],
)  # fmt: skip
def test_a_writer_that_fails_leaves_nothing(tmp_path, error, kind):
    def write():
        with atomic_directory(tmp_path / "out", 1) as aside:
            (aside / "file").write_text("x")
            raise error

    with pytest.raises(kind):
        write()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_writer_left_is_removed_by_the_next_and_what_is_being_written_is_not(tmp_path):
    killed = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from headstart.storage.atomic import atomic_directory\n"
        "with atomic_directory(Path(sys.argv[1]), 1) as aside:\n"
        "    (aside / 'half').write_text('x')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert forked.run(killed, tmp_path / "out", output=tmp_path.with_suffix(".log")) == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".tmp-out-")
    with atomic_directory(tmp_path / "out", 1) as first:
        assert not left.exists()
        with atomic_directory(tmp_path / "out", 1) as second:
            assert first.is_dir()
            assert second != first


def test_a_link_stays_a_link_and_its_empty_directory_is_filled(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with atomic_directory(tmp_path / "link", 1) as aside:
        (aside / "file").write_text("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/file").exists()


# ---- the verbs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_and_checkpoint(tmp_path_factory):
    """A run and a checkpoint."""
    path = tmp_path_factory.mktemp("made")
    random_runs.write(path / "run", "gpt2")
    export_huggingface(path / "run", path / "checkpoint")
    return path


@pytest.mark.parametrize("target", ["/proc/out", "file/out", "full", "file", "here"])
@pytest.mark.parametrize("verb", ["import", "export"])
def test_a_place_that_cannot_be_written_exits_2(run_and_checkpoint, tmp_path, capsys, monkeypatch, verb, target):
    (tmp_path / "file").write_text("mine")
    for name in ("full", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "full/mine").write_text("mine")
    monkeypatch.chdir(tmp_path / "here")
    out = "." if target == "here" else str(tmp_path / target)
    if verb == "import":
        answer = invoke(capsys, ["import", str(run_and_checkpoint / "checkpoint"), "--out", out])
    else:
        answer = invoke(capsys, ["export", str(run_and_checkpoint / "run"), "--to", "huggingface", out])
    assert answer.code == 2, answer
    assert "headstart [exists]: " in answer.err or "headstart [no-file]: " in answer.err
    assert "fix:" in answer.err
    assert "Traceback" not in answer.err
    assert (tmp_path / "file").read_text() == (tmp_path / "full/mine").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "here"]
