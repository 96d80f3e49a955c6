"""What a study leaves behind to use: the best arm on valid, whatever it is, with the study's own answers."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from expected_errors import refused
from small_study import MODEL, small_config, write_files

import headstart
from headstart.errors import IntegrityError, UserError
from headstart.inference.evaluate import evaluate_run
from headstart.inference.predict import predict
from headstart.machine import choose
from headstart.runs.load import LoadedRun
from headstart.runs.study_model import StudyModel, load, open_model, run_of
from headstart.serve.models import Models
from headstart.serve.service import classified
from headstart.study.model import keep_model
from headstart.study.study import study as run_study


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def study(files, tmp_path_factory):
    """A finished study, whose model tests choose by leaving one arm alone."""
    directory = tmp_path_factory.mktemp("studies") / "finished"
    kept = []

    def spy(data, record):
        kept.append((data, record))
        return keep_model(data, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headstart.study.study.keep_model", spy)
        run_study(small_config(files), out=directory, model=MODEL, jobs=2)
    return directory, *kept[0]


def texts_of(files, name="test"):
    with open(files[name]) as file:
        return [json.loads(line)["text"] for line in file]


def only(record, arm):
    """The record as if no other arm had been tried."""
    return dataclasses.replace(record, trials=[trial for trial in record.trials if trial.arm == arm])


def test_it_is_the_best_arm_on_valid_over_all_seeds_with_the_most_labels(study):
    directory, _, record = study
    model = json.loads((directory / "model" / "model.json").read_text())
    means = {}
    for trial in record.trials:
        if trial.budget == 20 and trial.arm != "majority":
            means.setdefault(trial.arm, []).append(trial.valid_score("accuracy"))
    best = max(np.mean(reached) for reached in means.values())
    assert np.mean(means[model["arm"]]) == best == model["valid_accuracy"]
    scores = {score.arm: score.accuracy.value for score in record.scores if score.budget == 20}
    assert model["accuracy"] == scores[model["arm"]], "the mean over seeds, not its own seed's"


@pytest.mark.parametrize("arm", ["tfidf", "lsa", "tfidf-lsa", "scratch", "frozen", "finetuned", "combined"])
def test_it_answers_as_the_trial_did(study, files, arm):
    directory, data, record = study
    kept = keep_model(data, only(record, arm))
    assert (kept.arm, kept.budget) == (arm, 20)
    model, machine = load(directory), choose("cpu")
    assert isinstance(model, LoadedRun if arm in ("scratch", "frozen", "finetuned") else StudyModel)
    answers = [prediction.answer for prediction in predict(model, texts_of(files), machine)]
    trial = json.loads((directory / "trials" / f"{arm}-b20-s0" / "trial.json").read_text())
    labels = record.data.labels
    assert [labels.index(answer["label"]) for answer in answers] == trial["predictions"]
    assert all(sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5) for answer in answers)
    evaluated = evaluate_run(model, files["test"], machine)
    right = next(t for t in record.trials if (t.arm, t.budget, t.seed) == (arm, 20, 0)).accuracy
    assert evaluated.metrics["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("arm", ["tfidf", "combined", "finetuned"])
def test_it_is_served_beside_the_report(study, files, arm):
    directory, data, record = study
    keep_model(data, only(record, arm))
    machine = choose("cpu")
    models = Models.at([directory], machine)
    assert (list(models.studies), list(models.runs)) == (["finished"], ["finished-model"])
    run = models.run(None, "classify")
    is_network = arm == "finetuned"
    assert run.can == (("classify", "attention") if is_network else ("classify",))
    assert run.about()["parameters"] > 0
    texts = texts_of(files)[:5]
    answers = dict(classified(run.loaded(), texts, machine))
    expected = [one.answer["label"] for one in predict(load(directory), texts, machine)]
    assert [answers[row].answer["label"] for row in range(5)] == expected
    python = headstart.load(directory, device="cpu")
    assert python.predict(texts) == expected
    assert python.predict_proba(texts).shape == (5, 2)
    if isinstance(python.loaded, StudyModel):
        assert arm in repr(python)
        with refused("wrong-run", str(directory)):
            python.embed(texts)


def test_what_a_killed_study_left_behind_is_not_taken_for_the_chosen_learning_rate(study, files):
    """Killed after trial.json and before it tidied up, a trial has the weights of every learning rate."""
    directory, data, record = study
    trial = directory / "trials" / "finetuned-b20-s0"
    chosen = json.loads((trial / "trial.json").read_text())["chosen"]
    for other in trial.glob("lr-*"):
        if other.name != f"lr-{chosen:g}":
            (other / "weights.safetensors").write_bytes(b"of another learning rate")
    try:
        keep_model(data, only(record, "finetuned"))
        assert load(directory).config.optimizer.learning_rate == chosen
    finally:
        for left in trial.glob("lr-*/weights.safetensors"):
            if left.parent.name != f"lr-{chosen:g}":
                left.unlink()


@pytest.mark.parametrize("arm", ["tfidf", "combined", "finetuned"])
def test_an_arm_whose_first_seed_failed_leaves_no_model(study, tmp_path, arm):
    directory, data, record = study
    copied = shutil.copytree(directory, tmp_path / "copy")
    (copied / "trials" / f"{arm}-b20-s0" / "trial.json").unlink()
    assert keep_model(dataclasses.replace(data, directory=copied), only(record, arm)) is None


def test_a_mix_has_the_exponents_that_were_chosen_on_valid(study, files):
    directory, data, record = study
    keep_model(data, only(record, "combined"))
    model, machine, texts = load(directory), choose("cpu"), texts_of(files)
    exponents = json.loads((directory / "trials" / "combined-b20-s0" / "trial.json").read_text())["exponents"]
    products = np.ones(1)
    for arm, exponent in zip(("tfidf", "lsa", "frozen", "finetuned"), exponents, strict=True):
        table = np.load(directory / "trials" / f"{arm}-b20-s0" / "probabilities.npz")["test"]
        products = products * table.astype(float) ** exponent
    answers = [list(one.answer["probabilities"].values()) for one in predict(model, texts, machine)]
    np.testing.assert_allclose(answers, products / products.sum(axis=1, keepdims=True), atol=1e-3)


def test_what_the_model_cannot_serve_is_refused_with_what_it_can(study):
    directory, data, record = study
    keep_model(data, only(record, "tfidf"))
    with refused("wrong-run", "tfidf", "predict", "trials"):
        run_of(directory)
    keep_model(data, only(record, "finetuned"))
    assert run_of(directory) == directory / "model" / "run"
    assert isinstance(open_model(directory, "embed"), LoadedRun)


def test_a_changed_byte_is_found(study):
    directory, data, record = study
    keep_model(data, only(record, "tfidf"))
    file = directory / "model" / "tfidf.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 4
    file.write_bytes(bytes(content))
    with pytest.raises(IntegrityError):
        load(directory)
    (directory / "model" / "model.json").write_text("{}")
    with pytest.raises(IntegrityError):
        load(directory)
    keep_model(data, record)
    load(directory)


def test_a_study_without_a_model_says_so(tmp_path):
    (tmp_path / "study.toml").write_text("")
    with pytest.raises(UserError) as error:
        load(tmp_path)
    assert error.value.code == "missing"


def test_the_columns_of_the_users_files_are_kept(files, tmp_path):
    renamed = dict(files)
    for name in ("train", "valid", "test"):
        renamed[name] = str(tmp_path / f"{name}.jsonl")
        with open(files[name]) as source, open(renamed[name], "w") as target:
            for row in map(json.loads, source):
                target.write(json.dumps({"review": row["text"], "stars": row["label"]}) + "\n")
    config = small_config(renamed, arms=["majority", "scratch", "tfidf"], seeds=1, budgets=[10])
    reading = dataclasses.replace(config.reading, text_column="review", label_column="stars")
    run_study(dataclasses.replace(config, reading=reading, pretrain=[]), out=tmp_path / "s", model=MODEL)
    evaluated = evaluate_run(load(tmp_path / "s"), renamed["test"], choose("cpu"))
    assert evaluated.count == 30
