"""Asked to stop, a run finishes its step, saves and leaves; asked twice, it leaves at once. Nothing is lost."""

import os
import signal
import threading
import time

import pytest
import small
from commands import Workspace, exit_code_of, run_files, steps_logged, wait_until

from headstart.runs import checkpoint
from headstart.training import loop
from headstart.training.signals import Stopped, StopRequests


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A workspace with a run that nobody disturbed."""
    workspace = Workspace(tmp_path_factory.mktemp("signals")).fill()
    assert exit_code_of(start(workspace, workspace.path / "peaceful")) == 0
    return workspace


def start(workspace, run, *more, **options):
    """Forty steps, saved by the minute alone: that is, never."""
    return workspace.start("--steps", 40, "--save-every", 0, "--out", run, *more, **options)


def check_it_ends_like_the_peaceful_one(workspace, run):
    assert exit_code_of(start(workspace, run)) == 0
    for name, raw in run_files(workspace.path / "peaceful").items():
        assert name == "config.toml" or (run / name).read_bytes() == raw, name
    assert list(run.rglob(".*")) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_step_is_finished_and_saved(tmp_path, workspace, number, code):
    run = tmp_path / "run"
    child = start(workspace, run)
    wait_until(lambda: steps_logged(run) >= 7, child)
    os.kill(child.pid, number)
    assert exit_code_of(child) == code
    found, _ = checkpoint.latest(run / "checkpoints")
    assert found.step == steps_logged(run) >= 7
    log = workspace.log.read_text()
    assert f"stopped at step {found.step} by {number.name}; it is saved" in log
    assert "run the same command again" in log
    check_it_ends_like_the_peaceful_one(workspace, run)


SLOW_SECOND_SAVE = """
import sys, time
from headstart.cli.main import run
from headstart.runs import checkpoint
write = checkpoint.write_tensors
def slow(path, tensors):
    write(path, tensors)
    if (path.parent.parent / "step-00000005").exists():
        time.sleep(60)
checkpoint.write_tensors = slow
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_interrupt_leaves_at_once_and_the_old_checkpoint_stays(tmp_path, workspace, first):
    run = tmp_path / "run"
    child = start(workspace, run, "--save-every", "5", program=SLOW_SECOND_SAVE)
    wait_until(lambda: (run / "checkpoints/step-00000005").exists(), child)
    os.kill(child.pid, first)
    wait_until(lambda: list(run.glob("checkpoints/.tmp-*/model.safetensors")), child)
    time.sleep(0.5)  # the first signal is seen between two calls of Python
    asked = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    assert exit_code_of(child) == 130
    assert time.monotonic() - asked < 10  # the save would have taken a minute
    found, passed_over = checkpoint.latest(run / "checkpoints")
    assert (found.step, passed_over) == (5, [])
    check_it_ends_like_the_peaceful_one(workspace, run)


class Late:
    """A signal that comes between two looks at it."""

    looks = 0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    @property
    def number(self):
        self.looks += 1
        return signal.SIGTERM if self.looks > 1 else None


def test_a_signal_between_two_lines_is_not_answered_before_the_save(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "StopRequests", Late)
    with pytest.raises(Stopped) as stopped:
        loop.train(small.training(tmp_path, save_every=0))
    found, _ = checkpoint.latest(tmp_path / "checkpoints")
    assert f"stopped at step {found.step} by SIGTERM" in str(stopped.value)


def test_afterwards_signals_are_what_they_were(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopRequests() as requests:
        os.kill(os.getpid(), signal.SIGTERM)
        assert requests.number == signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_training_in_a_thread_works(tmp_path):
    found, states = small.training(tmp_path), []
    worker = threading.Thread(target=lambda: states.append(loop.train(found)[0]))
    worker.start()
    worker.join()
    assert [state.step for state in states] == [12]
