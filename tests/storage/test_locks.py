"""Who holds a run, and that it is let go of."""

import re
import signal
import subprocess
import sys

import pytest
from expected_errors import refused

from headstart.storage.locks import run_lock

HOLD = "import sys, pathlib, time; from headstart.storage.locks import run_lock\n" \
       "with run_lock(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"  # fmt: skip


def test_the_second_is_told_who_holds_it_and_a_dead_holder_lets_go(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            refused("in-use", f"pid {holder.pid} since 20"),
            run_lock(tmp_path),
        ):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with run_lock(tmp_path):
        assert re.search(r'"pid": \d+', (tmp_path / "lock").read_text())


def test_an_error_before_anything_was_written_leaves_no_directory(tmp_path):
    with pytest.raises(ValueError, match="wrong column"), run_lock(tmp_path / "new"):
        raise ValueError("wrong column")
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    for directory, name in ((tmp_path / "old", "lock"), (tmp_path / "written", "config.toml")):
        with pytest.raises(FileExistsError), run_lock(directory):
            _fail_after_writing(directory / name)
        assert (directory / name).exists()


def _fail_after_writing(file):
    file.touch()
    raise FileExistsError("late")


def test_it_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with run_lock(tmp_path):
            pass


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with refused("no-file", "--out"), run_lock(tmp_path / "file" / "run"):
        pass
