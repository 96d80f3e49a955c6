"""`--best-metric`: the measures that each objective has are those that its evaluations give, and no other is taken."""

import json

import commands
import pytest
import small
import tiny_runs
import torch
import translators
from commands import Workspace
from expected_errors import refused

from headstart.config.training import LoopConfig
from headstart.inference.evaluate import evaluate, labelled_scores, with_corpus_metrics
from headstart.inference.metrics import SCORES
from headstart.runs.directory import MetricsFile, RunDirectory
from headstart.training import early_stopping
from headstart.training.tasks.finetune import finetune


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    return workspace


@pytest.fixture
def invoke(capsys):
    return lambda command: commands.invoke(capsys, command)


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp"])
def test_the_measures_of_a_language_objective_are_those_of_its_evaluation(kind, tmp_path):
    made = small.training(tmp_path, kind)
    assert set(evaluate(made.model, made.valid, made.machine).values) == set(early_stopping.METRICS[kind])


@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_the_measures_of_a_task_are_those_of_its_scores(task):
    outputs = {"classification": [[0.2, 0.8], [0.7, 0.3]], "multilabel": [[0.2, 0.8], [0.7, 0.3]]}
    targets = {"classification": [1, 0], "multilabel": [[0, 1], [1, 0]], "regression": [1.0, 2.0]}
    found = SCORES[task](torch.tensor(outputs.get(task, [[1.0], [3.0]])).numpy(), torch.tensor(targets[task]).numpy())
    assert set(early_stopping.METRICS[task]) == {"loss", *found} - {"majority_accuracy"}


def test_what_should_be_small_is_small_and_the_rest_is_turned_round():
    values = {"loss": 2.0, "macro_f1": 0.75}
    assert early_stopping.to_minimize(values, "loss") == 2.0
    assert early_stopping.to_minimize(values, "macro_f1") == -0.75


def test_another_measure_is_refused_with_those_that_there_are(workspace, invoke):
    answer = invoke(workspace.command("--best-metric", "macro_f1", "--patience", 1))
    assert answer.code == 2
    assert "headstart [unknown-name]: " in answer.err
    assert "macro_f1" in answer.err
    assert "--best-metric one of loss" in answer.err
    answer = invoke(workspace.command("--best-metric", "bleu", "--patience", 1, verb="finetune"))
    assert answer.code == 2
    assert "headstart [unknown-name]: " in answer.err
    assert "loss, accuracy, macro_f1" in answer.err
    assert not workspace.run.exists()


def test_a_choice_without_patience_is_refused():
    with refused("missing", "--best-metric", "--patience"):
        early_stopping.check_best_metric("classification", LoopConfig(best_metric="macro_f1", evaluate_every=5))


def test_a_choice_among_one_evaluation_is_refused(workspace, invoke):
    answer = invoke(workspace.command("--best-metric", "macro_f1", "--patience", 2, verb="finetune"))
    assert answer.code == 2
    assert "headstart [missing]: " in answer.err
    assert "--best-metric without --evaluate-every" in answer.err
    assert not workspace.run.exists()


def test_the_measures_of_a_translation_are_those_of_its_evaluation():
    result = json.loads((translators.path_of() / "result.json").read_bytes())
    assert set(early_stopping.METRICS["translation"]) == set(result["valid"])
    assert early_stopping.to_minimize({"cross_entropy": 2.0}, "cross_entropy") == 2.0


def test_a_run_is_chosen_by_macro_f1_and_says_so(workspace, invoke):
    more = (
        "--best-metric",
        "macro_f1",
        "--patience",
        2,
        "--evaluate-every",
        2,
        "--steps",
        40,
        "--learning-rate",
        0.02,
    )
    answer = invoke(workspace.command(*more, verb="finetune"))
    assert answer.code == 0, answer.err
    assert RunDirectory(workspace.run).read_config().loop.best_metric == "macro_f1"
    lines = [json.loads(line) for line in (workspace.run / "metrics.jsonl").read_text().splitlines()]
    valid = [line for line in lines if line.get("event") == "valid"]
    best = max(valid, key=lambda line: line["macro_f1"])
    result = json.loads((workspace.run / "result.json").read_text())
    assert result["best_step"] == best["step"]
    assert result["valid"]["macro_f1"] == pytest.approx(best["macro_f1"])
    answer = invoke(workspace.command(*("--best-metric", "loss"), *more[2:], verb="finetune"))
    assert answer.code == 2
    assert "headstart [changed]: " in answer.err
    assert "loop.best_metric was 'macro_f1', is 'loss'" in answer.err


def test_the_scored_objective_gives_the_same_loss(tmp_path):
    made = small.training(tmp_path, "classification")
    plain = evaluate(made.model, made.valid, made.machine)
    valid = with_corpus_metrics(made.valid, lambda model, on: labelled_scores(model, made.valid, on))
    scored = evaluate(made.model, valid, made.machine)
    assert plain.values.items() <= scored.values.items()
    assert made.model.training  # as it was


def test_regression_can_be_chosen_by_rmse(tmp_path):
    result = finetune(
        tiny_runs.files()["regression", "train"], out=tmp_path / "run", task="regression", length=16,
        model=tiny_runs.SHAPE, tokenizer=small.tokenizer(), steps=6, machine=tiny_runs.MACHINE,
        loop=LoopConfig(evaluate_every=2, patience=9, best_metric="rmse"),
    )  # fmt: skip
    assert result["best_step"] > 0


def test_all_metrics_are_computed_at_every_evaluation_where_that_is_asked_for(tmp_path):
    for valid_metrics in (False, True):
        out = tmp_path / str(valid_metrics)
        result = finetune(
            tiny_runs.files()["classification", "train"], out=out, length=16, model=tiny_runs.SHAPE,
            tokenizer=small.tokenizer(), steps=4, evaluate_every=2, machine=tiny_runs.MACHINE,
            valid_metrics=valid_metrics, class_weights="balanced",
        )  # fmt: skip
        valid = [line for line in MetricsFile(out / "metrics.jsonl").read() if line.get("event") == "valid"]
        assert [("macro_f1" in line) for line in valid] == [valid_metrics] * 2
    assert valid[-1]["macro_f1"] == pytest.approx(result["valid"]["macro_f1"])
    assert RunDirectory(out).read_config().class_weights == "balanced"
