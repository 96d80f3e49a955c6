"""Two runs in one directory: the second says who holds it; a killed holder lets go."""

import re
import signal
import subprocess
import sys

import pytest

from headstart.errors import UserError
from headstart.training.lock import RunLock

HOLD = "import sys, pathlib, time; from headstart.training.lock import RunLock\n" \
       "with RunLock(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"  # fmt: skip


def test_the_second_is_told_who_holds_it_and_a_dead_holder_lets_go(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=rf"locked by pid {holder.pid} since \d{{4}}-"), RunLock(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunLock(tmp_path):
        assert re.search(r'"pid": \d+', (tmp_path / "lock").read_text())


def test_it_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with RunLock(tmp_path):
            pass


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="give another --out"), RunLock(tmp_path / "file" / "run"):
        pass
