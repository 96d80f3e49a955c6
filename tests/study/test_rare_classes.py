"""A study in which a class has 5 % of the rows: everything is chosen, compared and said by macro-F1."""

import dataclasses
import json

import checksummed
import numpy as np
import pytest
import small_study
from expected_errors import refused
from sklearn.metrics import f1_score

import headstart
from headstart.data.labelled import read_labelled
from headstart.demo.corpus import reviews
from headstart.report.page import write_report

ROWS = {"train": 80, "valid": 60, "test": 60}
ARMS = ["majority", "tfidf", "scratch"]


def config_of(files, **changes):
    config = small_study.small_config(files, arms=ARMS, budgets=[20, 80], **changes)
    return dataclasses.replace(config, pretrain=[])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Labels that have nothing to do with the texts, so that nothing can beat the majority class."""
    directory = tmp_path_factory.mktemp("files")
    found = small_study.write_files(directory)
    for name, count in ROWS.items():
        texts = [review.french for review in reviews(0, name, count=count)]
        rows = [{"text": text, "label": "rare" if n % 20 == 7 else "other"} for n, text in enumerate(texts)]
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    directory, told = tmp_path_factory.mktemp("studies") / "rare", []
    config = config_of(files)
    config = dataclasses.replace(config, finetune=dataclasses.replace(config.finetune, class_weights="balanced"))
    record = headstart.study(config, out=directory, model=small_study.MODEL, jobs=1, log=told.append)
    return directory, record, told


def test_the_verdict_compares_with_the_majority_class_first(finished):
    _, record, told = finished
    assert record.metric == "macro_f1"
    assert record.verdict[0].startswith("No arm is clearly better than always answering 'other'")
    assert "% macro-F1" in record.verdict[0]
    assert any("--metric accuracy" in line for line in told)


def test_learning_rates_and_strengths_are_the_best_on_valid_by_macro_f1(finished):
    directory, record, _ = finished
    for trial in record.trials:
        if trial.tries:
            best = max(one.macro_f1 for one in trial.tries)
            assert trial.valid_score("macro_f1") == best
    scratch = next(trial for trial in record.trials if (trial.arm, trial.budget) == ("scratch", 80))
    assert scratch.curve[-1].macro_f1 == trial_curve(directory, scratch)[-1]["macro_f1"]
    assert (directory / "model" / "model.json").exists()
    assert "valid_macro_f1" in (directory / "model" / "model.json").read_text()


def trial_curve(directory, trial):
    """What the run of the chosen learning rate has logged."""
    run = directory / "trials" / trial.name / f"lr-{trial.chosen:g}"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line.get("event") == "valid"]


def test_differences_are_of_macro_f1(finished, files):
    directory, record, _ = finished
    truth = read_labelled(files["test"]).labels

    def f1(arm, budget):
        trials = [json.loads(f.read_text()) for f in directory.glob(f"trials/{arm}-b{budget}-s*/trial.json")]
        said = [[("other", "rare")[number] for number in trial["predictions"]] for trial in trials]
        return np.mean([f1_score(truth, one, average="macro") for one in said])

    (row,) = [row for row in record.differences if (row.arm, row.against, row.budget) == ("scratch", "tfidf", 80)]
    assert row.value == pytest.approx(f1("scratch", 80) - f1("tfidf", 80))


def test_every_class_has_rows_at_every_budget_and_weights_in_every_trial(finished, files):
    directory, _, _ = finished
    config = (directory / "trials" / "scratch-b20-s0" / "lr-0.01" / "config.toml").read_text()
    assert 'class_weights = "balanced"' in config
    assert 'label_names = ["other", "rare"]' in config


def test_the_report_and_the_page_in_the_terminal_say_macro_f1(finished):
    directory, _, _ = finished
    assert "Macro-F1 over labels" in write_report(directory).read_text()


def test_another_metric_would_choose_otherwise_and_is_refused(finished, files):
    directory, _, _ = finished
    config = config_of(files, metric="accuracy")
    config = dataclasses.replace(config, finetune=dataclasses.replace(config.finetune, class_weights="balanced"))
    with refused("changed", "study.metric", "macro_f1", "accuracy"):
        headstart.study(config, out=directory, model=small_study.MODEL, jobs=1)


def test_a_study_from_before_there_was_a_metric_was_by_accuracy(files, tmp_path):
    config, directory = config_of(files, metric="accuracy", seeds=1), tmp_path / "older"
    config = dataclasses.replace(config, study=dataclasses.replace(config.study, arms=["majority"]))
    assert headstart.study(config, out=directory, model=small_study.MODEL, jobs=1).metric == "accuracy"
    file = directory / "study.toml"
    file.write_text(checksummed.sealed(file.read_text().partition("\n\n")[2].replace('metric = "accuracy"\n', "")))
    later = dataclasses.replace(config, study=dataclasses.replace(config.study, metric="auto"))
    with refused("changed", "study.metric", "accuracy", "macro_f1"):
        headstart.study(later, out=directory, model=small_study.MODEL, jobs=1)
    assert headstart.study(config, out=directory, model=small_study.MODEL, jobs=1).metric == "accuracy"
