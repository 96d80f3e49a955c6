"""The step log: results are read late and together, and each step is handed on once, in order."""

import json

import numpy as np
import pytest
import torch

from headstart.config.training import LoopConfig
from headstart.runs.directory import MetricsFile
from headstart.training import step_log
from headstart.training.checkpoints import LoopState
from headstart.training.step_log import StepLog, StepResult, TakenStep, read_results


def result(loss, count=2.0, norm=0.5, is_updated=True):
    return StepResult(("loss", "accuracy"), torch.tensor([norm, is_updated, loss * count, count, 1.0, count]))


def taken(number, loss=1.0):
    return TakenStep(number, {"tokens": np.zeros((2, 3))}, 0.1, result(loss))


def made_log(directory, on_step, reads_late=True):
    metrics = MetricsFile(directory / "metrics.jsonl", print)
    return StepLog(LoopState(steps=9), metrics, LoopConfig(), print, on_step, reads_late=reads_late)


def test_sums_are_divided_by_their_counts():
    numbers = result(3.0, is_updated=False).read()
    assert (numbers.loss, numbers.gradient_norm, numbers.is_updated) == (3.0, 0.5, False)
    assert numbers.log == {"accuracy": 0.5}
    assert read_results([]) == []
    assert result(0.0, count=0.0).read().loss == 0.0


def test_a_clone_is_not_written_over():
    first = result(3.0)
    copied = first.clone()
    first.values.zero_()
    assert copied.read().loss == 3.0


def test_steps_are_handed_on_once_and_in_order(tmp_path):
    heard = []
    log = made_log(tmp_path, lambda progress: heard.append((progress.step, progress.loss)))
    log.add(taken(1, 4.0))
    log.add(taken(2, 5.0))
    assert heard == []
    log.read()
    log.read()
    assert heard == [(1, 4.0), (2, 5.0)]
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(record["step"], record["loss"], record["tokens"]) for record in records] == [
        (1, 4.0, 6),
        (2, 5.0, 6),
    ]


@pytest.mark.parametrize("reads_late", [True, False])
def test_results_are_due_at_once_or_after_some_steps_or_seconds(tmp_path, monkeypatch, reads_late):
    now = [0.0]
    monkeypatch.setattr(step_log.time, "monotonic", lambda: now[0])
    log = made_log(tmp_path, lambda progress: None, reads_late)
    assert log.is_due() != reads_late
    for number in range(step_log.READ_STEPS):
        assert log.is_due() != reads_late
        log.add(taken(number))
    assert log.is_due()
    log.read()
    assert log.is_due() != reads_late
    now[0] += 2 * step_log.READ_SECONDS
    assert log.is_due()
    log.restart_clock()
    assert log.is_due() != reads_late
