"""metrics.jsonl is a log to read: whatever happens to it, nothing is chosen, scored or drawn otherwise."""

import errno
import json
import os

import pytest
import small
from small_study import MODEL, small_config, write_files

from headstart.runs import directory
from headstart.runs.directory import MetricsFile
from headstart.study import trial as trial_module
from headstart.study.data import prepare
from headstart.study.design import trials_of
from headstart.training.loop import train


def records(path):
    """All lines, each of which has to be whole."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def full(monkeypatch):
    """A disk that is full for the log while the name in the list is there."""
    is_full = []

    def opener(path, flags):
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.open(path, flags, 0o666)

    monkeypatch.setattr(directory, "_open_no_link", opener)
    return is_full


def test_a_disk_that_is_full_for_a_moment_leaves_a_gap_that_the_log_tells(tmp_path, full):
    said = []
    log = MetricsFile(tmp_path / "metrics.jsonl", said.append)
    for step in range(1, 7):
        full[:] = ["full"] if step in (3, 4) else []
        log.write(step=step)
    gap = {"event": "missing", "step": 5, "records": 2}
    assert records(log.path) == [{"step": 1}, {"step": 2}, gap, {"step": 5}, {"step": 6}]
    assert len(said) == 1


# ---- a run that is resumed ----------------------------------------------------------------------------------------


STEPS = {"evaluate_every": 3, "schedule": "constant"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "whole"
    training = small.training(path, **STEPS)
    return train(training)[0], small.digest(training), (path / "metrics.jsonl").read_bytes()


@pytest.fixture
def half(tmp_path):
    """A run that has seven of its twelve steps behind it."""
    train(small.training(tmp_path, steps=7, **STEPS))
    return tmp_path


def resumed(path):
    """What it came to, and what was said."""
    training, said = small.training(path, **STEPS), []
    training.log = said.append
    state, _ = train(training)
    return state, small.digest(training), "\n".join(said)


def damaged(log, how):
    """Damage the log; returns the bytes that cannot be had back."""
    lines = log.read_bytes().splitlines(keepends=True)
    if how == "gone":
        log.unlink()
        return sum(map(len, lines))
    if how == "cut within a line":
        log.write_bytes(b"".join(lines[:-1]) + lines[-1][:-5])
        return len(lines[-1])
    if how == "cut within a line, and written to":
        lines[-2] = lines[-2][:-5]
    else:
        lines[2] = {"zeros": b"\0" * 40 + b"\n", "no object": b"[1]\n", "not UTF-8": b'{"\xff": 1}\n'}[how]
    before = len(log.read_bytes())
    log.write_bytes(b"".join(lines))
    readable = sum(len(line) for line in log.read_bytes().splitlines(keepends=True) if is_record(line))
    return before - readable


def is_record(line):
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


DAMAGES = ["gone", "cut within a line", "cut within a line, and written to", "zeros", "no object", "not UTF-8"]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_log_is_mended_and_says_what_is_missing_and_nothing_else_changes(half, whole, how):
    lost = damaged(half / "metrics.jsonl", how)
    state, digest, said = resumed(half)
    assert f"{lost:,} bytes of the log are missing" in said
    lines = records(half / "metrics.jsonl")
    assert [line for line in lines if line.get("event") == "missing"] == [
        {"event": "missing", "step": 7, "bytes": lost}
    ]
    assert [line["step"] for line in lines if "event" not in line][-5:] == [8, 9, 10, 11, 12]
    assert digest == whole[1]
    assert (state.late_losses, state.best_step) == (whole[0].late_losses, whole[0].best_step)
    at = [one for one in state.evaluations if one["step"] != 7]  # where the shorter run ended
    assert at == whole[0].evaluations


def test_a_log_that_nothing_happened_to_says_nothing(half, whole):
    assert "missing" not in resumed(half)[2]
    lines = (half / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    ends = [line for line in lines if not (b'"valid"' in line and b'"step": 7' in line)]
    assert b"".join(ends) == whole[2]


def test_a_log_that_is_a_link_is_replaced_and_what_it_points_to_is_not_touched(tmp_path, whole):
    target = tmp_path / "mine.txt"
    target.write_text("not a log\n" * 9)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").symlink_to(target)
    _, digest, _ = resumed(tmp_path / "run")
    assert digest == whole[1]
    assert target.read_text() == "not a log\n" * 9
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == whole[2]


def test_a_log_that_becomes_a_link_meanwhile_is_not_followed(tmp_path):
    target, said = tmp_path / "mine.txt", []
    target.write_text("not a log")
    log = MetricsFile(tmp_path / "metrics.jsonl", said.append)
    log.path.symlink_to(target)
    log.write(step=1)
    assert target.read_text() == "not a log"
    assert len(said) == 1


# ---- a study ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["always", "for a moment"])
def test_the_learning_rate_of_a_trial_is_chosen_without_the_log(tmp_path, full, monkeypatch, when):
    files = write_files(tmp_path / "files")
    config = small_config(files, arms=["scratch"], budgets=[10], seeds=1)
    found = []
    for name in ("peaceful", "full"):
        data = prepare(config, MODEL, tmp_path / name, "cpu", lambda line: None)
        (trial,) = trials_of(data.config.study)

        def on_share(share, name=name):
            full[:] = ["full"] if name == "full" and (when == "always" or share > 0.4) else []

        on_share(0.0)
        trial_module.run_trial(data, trial, on_share)
        found.append(data.read_trial(trial))
    assert found[0] == found[1]
    assert len(found[0]["curve"]) == 2
