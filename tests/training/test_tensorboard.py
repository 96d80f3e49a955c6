"""--track tensorboard: the points of metrics.jsonl, each once, however often the run was killed."""

import json
import signal
import struct
from pathlib import Path

import pytest
from commands import STEPS, Workspace, exit_code_of, invoke, run_files, steps_logged, wait_until
from expected_errors import refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from headstart.training import tensorboard as tracking
from headstart.training.tensorboard import EventFile, require, scalars

TRACK = ("--track", "tensorboard", "--evaluate-every", 3)


@pytest.fixture(scope="module")
def shared_workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("tracked")).fill()


def workspace_of(shared_workspace, name):
    workspace = Workspace(shared_workspace.path)
    workspace.run, workspace.log = shared_workspace.path / name, shared_workspace.path / f"{name}.log"
    return workspace


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def points(run):
    """What TensorBoard shows: (step, value) by name."""
    found = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def expected(run):
    """The same, computed by hand from metrics.jsonl."""
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        part, step = record.pop("event", "train"), record.pop("step")
        for name, value in record.items():
            found.setdefault(f"{part}/{name}", []).append((step, float32(value)))
    return found


def assert_true_to_metrics(run):
    shown = points(run)
    assert shown == expected(run)
    for steps in ([step for step, _ in values] for values in shown.values()):
        assert steps == sorted(set(steps)), "a step is there twice"


def test_a_run_killed_and_resumed_shows_every_step_once(shared_workspace, capsys):
    workspace = workspace_of(shared_workspace, "killed")
    settings = (*TRACK, "--save-every", 1000)  # so that there is something to cut back
    child = workspace.start(*settings, "--steps", 400, verb="finetune")
    wait_until(lambda: steps_logged(workspace.run) >= 9, child)
    child.kill()
    assert exit_code_of(child) == -signal.SIGKILL
    first = sorted((workspace.run / "tensorboard").iterdir())
    assert points(workspace.run)["train/loss"], "a reader sees it while it runs"
    short = steps_logged(workspace.run) + 4
    again = workspace.command(*settings, "--steps", short, "--override-resume", None, verb="finetune")
    answer = invoke(capsys, again)
    assert answer.code == 0, answer.err
    assert_true_to_metrics(workspace.run)
    assert [step for step, _ in points(workspace.run)["train/loss"]] == list(range(1, short + 1))
    (now,) = (workspace.run / "tensorboard").iterdir()
    assert now not in first, "a TensorBoard that is open reads the new file after the old one"


def test_tracking_changes_no_byte_and_can_be_begun_later(shared_workspace, capsys):
    plain, tracked = workspace_of(shared_workspace, "plain"), workspace_of(shared_workspace, "tracked")
    for workspace, settings in ((plain, TRACK[2:]), (tracked, TRACK)):
        assert invoke(capsys, workspace.command(*settings, verb="finetune")).code == 0
    assert run_files(plain.run) == run_files(tracked.run)
    assert not (plain.run / "tensorboard").exists()
    # Finished without it: the same command with it writes what there is.
    assert invoke(capsys, plain.command(*TRACK, verb="finetune")).code == 0
    assert_true_to_metrics(plain.run)
    assert {"train/loss", "train/learning_rate", "train/accuracy", "valid/loss"} <= set(points(plain.run))
    assert [step for step, _ in points(plain.run)["valid/loss"]] == [3, STEPS]
    assert run_files(plain.run) == run_files(tracked.run)


def test_two_files_left_by_a_kill_are_read_as_the_last(tmp_path):
    """Killed between writing the new file and deleting the old one."""
    events = EventFile(tmp_path, print)
    events.begin(lambda: [{"step": step, "loss": 9.0} for step in range(1, 6)])
    events.close()
    (old,) = (tmp_path / "tensorboard").iterdir()
    kept = old.read_bytes()
    events.begin(lambda: [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 2.0}])
    events.add({"step": 3, "loss": 3.0})
    events.close()
    assert points(tmp_path) == {"train/loss": [(1, 1.0), (2, 2.0), (3, 3.0)]}
    old.write_bytes(kept)
    assert points(tmp_path) == {"train/loss": [(1, 1.0), (2, 2.0), (3, 3.0)]}


def test_what_is_shown_of_a_record():
    assert scalars({"step": 3, "loss": 0.5, "gradient_norm": None, "tokens": 7}) == {
        "train/loss": 0.5,
        "train/tokens": 7.0,
    }
    assert scalars({"event": "valid", "step": 3, "loss": 0.25}) == {"valid/loss": 0.25}
    assert scalars({"event": "skipped", "step": 4, "reason": "spike", "loss": 1e9, "rows": [1]}) == {
        "train/skipped": 1.0
    }


class _FullDisk:
    """A file that takes so many bytes and no more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self.file.write(data)

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.close()


@pytest.mark.parametrize("room", [0, 300])
def test_a_full_disk_is_told_once_and_stops_nothing(tmp_path, monkeypatch, room):
    told, opened = [], Path.open
    monkeypatch.setattr(Path, "open", lambda path, *mode: _FullDisk(opened(path, *mode), room))
    events = EventFile(tmp_path, told.append)
    events.begin(lambda: [{"step": 1, "loss": 1.0}])
    for step in range(2, 50):
        events.add({"step": step, "loss": 1.0})
    events.close()
    assert len(told) == 1
    assert "No space left on device" in told[0]
    assert str(tmp_path / "tensorboard") in told[0]


def test_metrics_that_cannot_be_read_back_stop_nothing(tmp_path):
    told = []

    def broken():
        raise ValueError("no JSON")

    events = EventFile(tmp_path, told.append)
    events.begin(broken)
    events.add({"step": 1, "loss": 1.0})
    assert len(told) == 1


def test_a_place_that_is_no_directory_is_told_and_training_goes_on(shared_workspace, capsys):
    workspace = workspace_of(shared_workspace, "blocked")
    workspace.run.mkdir()
    (workspace.run / "tensorboard").write_text("mine")
    answer = invoke(capsys, workspace.command(*TRACK, "--steps", 2, verb="finetune"))
    assert answer.code == 0
    assert answer.err.count("training continues without it") == 1
    assert (workspace.run / "tensorboard").read_text() == "mine"


def test_without_the_extra_it_is_refused_before_anything_is_read(tmp_path, capsys, monkeypatch):
    real = tracking.importlib.import_module

    def without(name, *more):
        if name.startswith("tensorboard"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(tracking.importlib, "import_module", without)
    out = tmp_path / "run"
    answer = invoke(capsys, ["finetune", "--train", "missing.tsv", "--track", "tensorboard", "--out", str(out)])
    assert answer.code == 2
    assert "headstart [no-package]: " in answer.err
    assert "pip install 'headstart[tensorboard]'" in answer.err
    assert "missing.tsv" not in answer.err
    assert not out.exists()
    with refused("no-package", "--track=tensorboard"):
        require("tensorboard")
    require(None)
