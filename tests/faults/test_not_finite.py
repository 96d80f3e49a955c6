"""A training that leaves the numbers that there are: it ends, and what it writes can be read by anybody."""

import json
import math

import commands
import pytest
from commands import Workspace

from headstart.inference.evaluate import Scores
from headstart.runs import checkpoint


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    return workspace


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("verb", ["pretrain", "translation"])
@pytest.mark.parametrize("patience", [0, 9])
def test_scores_that_are_not_finite_are_nulls_in_the_result(workspace, capsys, monkeypatch, verb, patience):
    def not_finite(*arguments, **options):
        return Scores({"loss": math.nan, "cross_entropy": math.inf}, 1)

    for module in ("training.loop", "training.fit", "training.tasks.translation"):
        monkeypatch.setattr(f"headstart.{module}.evaluate", not_finite)
    more = ("--steps", 3, "--evaluate-every", 1, "--patience", patience)
    answer = commands.invoke(capsys, workspace.command(*more, verb=verb))
    assert answer.code == 0, answer.err
    assert "not finite" in answer.out
    result = strict((workspace.run / "result.json").read_text())
    assert result["valid"]["loss"] is None
    assert result["best_step"] == -1
    again = commands.invoke(capsys, [*workspace.command(*more, verb=verb), "--json"])
    assert again.code == 0, again.err
    assert strict(again.out)["valid"]["loss"] is None
    listed = commands.invoke(capsys, ["runs", str(workspace.path)])
    assert (listed.code, "finished" in listed.out) == (0, True), listed.err


@pytest.mark.parametrize("rate", ["1e30", "nan", "inf", "-1", "0"])
def test_a_learning_rate_beyond_reason_is_refused(workspace, capsys, rate):
    answer = commands.invoke(capsys, [*workspace.command(), f"--learning-rate={rate}"])
    assert answer.code == 2
    assert "--learning-rate" in answer.err
    assert not workspace.run.exists()


def test_the_first_finite_score_is_the_best_so_far(workspace, capsys, monkeypatch):
    given = iter([float("nan"), 3.0, float("nan"), 2.0])
    monkeypatch.setattr("headstart.training.early_stopping.to_minimize", lambda values, measure: next(given))
    more = ("--steps", 4, "--evaluate-every", 1, "--patience", 3)
    answer = commands.invoke(capsys, workspace.command(*more))
    assert answer.code == 0, answer.err
    assert json.loads((workspace.run / "result.json").read_text())["best_step"] == 4


@pytest.mark.parametrize("keep", [2, 0])
@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_weights_that_explode_at_the_last_step_are_no_result(workspace, capsys, monkeypatch, verb, keep):
    monkeypatch.setattr("headstart.training.loop.learning_rate_factor", lambda loop, step, steps: 1e45 ** (step == 2))
    command = workspace.command("--steps", 3, "--save-every", 1, "--keep", keep, verb=verb)
    answer = commands.invoke(capsys, command)
    assert (answer.code, "headstart [not-finite]: " in answer.err) == (1, True), answer.err
    assert not (workspace.run / "result.json").exists()
    assert not (workspace.run / "weights.safetensors").exists()
    found, passed_over = checkpoint.latest(workspace.run / "checkpoints")
    assert (found.step, passed_over) == (2, [])
    monkeypatch.undo()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    assert commands.invoke(capsys, command).code == 0


def test_weights_that_explode_before_anything_is_saved_are_no_result(workspace, capsys, monkeypatch):
    monkeypatch.setattr("headstart.training.loop.learning_rate_factor", lambda loop, step, steps: 1e45)
    answer = commands.invoke(capsys, workspace.command("--steps", 1, "--save-every", 0, "--keep", 0))
    assert (answer.code, "headstart [not-finite]: " in answer.err) == (1, True), answer.err
    assert not (workspace.run / "result.json").exists()
    assert not (workspace.run / "weights.safetensors").exists()
