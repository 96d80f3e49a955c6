"""The frozen arm: the base's own vectors, and the head that fits them best."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small_study import MODEL, small_config, write_files

from headstart.inference.evaluate import labelled_outputs
from headstart.machine import choose
from headstart.runs.load import load
from headstart.study import trial as trial_module
from headstart.study.baselines import logistic_regression
from headstart.study.data import prepare
from headstart.study.design import Pretraining, trials_of
from headstart.study.frozen import FrozenBase

MACHINE = choose("cpu", "fp32", 1)
LENGTH = 32


@pytest.fixture(scope="module")
def based(tmp_path_factory):
    """The data of a study, its base, and the vectors."""
    path = tmp_path_factory.mktemp("frozen")
    config = small_config(write_files(path / "files"), arms=["majority", "frozen"], seeds=1)
    data = prepare(config, MODEL, path / "study", "cpu", lambda line: None)
    task = Pretraining("causal", 0)
    trial_module.run_pretraining(data, task, lambda share: None)
    base = FrozenBase(data.base(task), LENGTH, None)
    return data, base, base.vectors(data.sets(), MACHINE)


def test_a_vector_is_what_the_base_makes_of_the_last_token(based):
    data, base, vectors = based
    run = load(base.path)
    begin, end = (run.tokenizer.roles[role] for role in ("begin", "end"))
    found = []
    for ids in data.sets()["valid"].token_ids:
        tokens = torch.tensor([[begin, *ids[: LENGTH - 2].tolist(), end]])
        with torch.inference_mode():
            found.append(run.model.base(tokens)[0, -1].numpy())
    np.testing.assert_allclose(vectors["valid"] * vectors["size"], np.stack(found), rtol=1e-4, atol=1e-5)
    assert np.mean(vectors["train"] ** 2) == pytest.approx(1, rel=1e-5)


def test_the_base_reads_the_texts_once_for_all_trials(based, monkeypatch):
    data, *_ = based
    first, second = (trial for trial in trials_of(data.config.study) if trial.arm.kind == "frozen")
    trial_module.run_trial(data, first, lambda share: None)
    monkeypatch.setattr(FrozenBase, "vectors", None)
    trial_module.run_trial(data, second, lambda share: None)
    assert data.read_trial(second)["status"] == "done"


def test_a_trial_that_was_killed_before_it_told_of_its_run_writes_it_again(based):
    data, *_ = based
    trial = next(
        trial for trial in trials_of(data.config.study) if data.keeps_model(trial) and trial.arm.kind == "frozen"
    )
    file = data.trial_file(trial)
    trial_module.run_trial(data, trial, lambda share: None)
    first, weights = file.read_bytes(), file.with_name("run") / "weights.safetensors"
    before = weights.read_bytes()
    file.unlink()
    trial_module.run_trial(data, trial, lambda share: None)
    assert (file.read_bytes(), weights.read_bytes()) == (first, before)


def test_the_trial_with_most_labels_has_its_base_read_the_texts(based):
    data, *_ = based
    study = dataclasses.replace(data.config.study, seeds=4, pretrain_seeds=2)
    data = dataclasses.replace(data, config=dataclasses.replace(data.config, study=study))
    trials = [trial for trial in trials_of(study) if trial.arm.kind == "frozen"]
    assert [trial.name for trial in trials if data.makes_vectors(trial)] == ["frozen-b20-s0", "frozen-b20-s1"]
    (before,) = data.trials_before(next(trial for trial in trials if trial.name == "frozen-b10-s3"))
    assert before.name == "frozen-b20-s1"


@pytest.mark.parametrize("classes", [2, 3])
def test_its_run_has_the_probabilities_of_the_regression(based, tmp_path, classes):
    _, _, vectors = based
    labels, valid = np.arange(40) % classes, np.arange(20) % classes
    result = logistic_regression(vectors["train"], vectors["valid"], vectors["test"], labels, valid, classes)
    found = probabilities(based, result.arrays, "abc"[:classes], tmp_path)
    own = LogisticRegression(C=result.chosen, tol=1e-8, max_iter=100_000).fit(vectors["train"].astype(float), labels)
    np.testing.assert_allclose(found, own.predict_proba(vectors["test"]), atol=2e-3)
    np.testing.assert_allclose(found, result.test, atol=1e-5)


def test_a_class_without_rows_is_never_predicted(based, tmp_path):
    _, _, vectors = based
    labels = np.arange(40) % 2
    result = logistic_regression(vectors["train"], vectors["valid"], vectors["test"], labels, np.zeros(20), classes=3)
    found = probabilities(based, result.arrays, "abc", tmp_path)
    assert found[:, 2].max() < 1e-6
    np.testing.assert_allclose(found, result.test, atol=1e-5)


def test_one_class_alone_is_always_predicted(based, tmp_path):
    _, _, vectors = based
    result = logistic_regression(
        vectors["train"], vectors["valid"], vectors["test"], np.ones(40), np.ones(20), classes=2
    )
    assert (probabilities(based, result.arrays, "ab", tmp_path).argmax(axis=1) == 1).all()


def probabilities(based, regression, labels, path):
    """What the run that is written says of the rows of test."""
    data, base, vectors = based
    base.write_run(regression, float(vectors["size"]), list(labels), path / "run", pairs=False)
    rows = dataclasses.replace(data.sets()["test"], labels=[labels[0]] * 30)
    return labelled_outputs(load(path / "run"), rows, MACHINE)[0]
