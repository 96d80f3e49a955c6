"""One trial: learning rates are tried on valid, and nothing is tokenized again."""

import json

import pytest
from expected_errors import refused
from small_study import MODEL, small_config, write_files

from headstart.data import cooccurrence
from headstart.errors import RunFailed
from headstart.study import trial as trial_module
from headstart.study.data import lsa_texts, prepare
from headstart.study.design import trials_of
from headstart.tokenizers.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


def diverging(monkeypatch, rates):
    """Fine-tuning in this process, where these rates fail as a diverging run does."""
    finetune = trial_module._finetune

    def failing(data, trial, rate, *rest):
        if rate in rates:
            raise RunFailed("5 updates in a row were skipped")
        return finetune(data, trial, rate, *rest)

    monkeypatch.setattr(trial_module, "_finetune", failing)


@pytest.fixture
def one_trial(files, tmp_path):
    config = small_config(files, arms=["scratch"], budgets=[10], seeds=1)
    data = prepare(config, MODEL, tmp_path / "study", "cpu", lambda line: None)
    (trial,) = trials_of(data.config.study)
    return data, trial


def test_a_rate_that_diverges_loses_and_the_trial_goes_on(one_trial, monkeypatch):
    diverging(monkeypatch, [0.01])
    trial_module.run_trial(*one_trial, lambda share: None)
    found = json.loads(one_trial[0].trial_file(one_trial[1]).read_text())
    assert found["chosen"] == 0.001
    assert found["tries"][1] == {"value": 0.01, "accuracy": 0.0, "loss": None}


def test_a_trial_tokenizes_no_text(one_trial, monkeypatch):
    def refuse(self, texts):
        raise AssertionError("tokenized again")

    monkeypatch.setattr(Tokenizer, "encode_flat", refuse)
    trial_module.run_trial(*one_trial, lambda share: None)
    assert one_trial[0].trial_file(one_trial[1]).exists()


def test_a_trial_whose_rates_all_diverge_has_failed(one_trial, monkeypatch):
    diverging(monkeypatch, [0.001, 0.01])
    with refused("failed", "5 updates", by=RunFailed):
        trial_module.run_trial(*one_trial, lambda share: None)
    assert not one_trial[0].trial_file(one_trial[1]).exists()


@pytest.mark.parametrize("arm", ["majority", "tfidf", "lsa"])
def test_a_baseline_with_all_rows_is_computed_once(arm, files, tmp_path, monkeypatch):
    monkeypatch.setattr(cooccurrence, "MOST_CONTEXTS", 64)  # to be quick
    config = small_config(files, arms=[arm], budgets=[10, 40], seeds=2)
    data = prepare(config, MODEL, tmp_path / "study", "cpu", lambda line: None)
    trials = {(trial.budget, trial.seed): trial for trial in trials_of(data.config.study)}
    for key in ((40, 0), (10, 0), (10, 1)):
        trial_module.run_trial(data, trials[key], lambda share: None)
    monkeypatch.setattr(trial_module, "_baseline", None)
    trial_module.run_trial(data, trials[40, 1], lambda share: None)
    found = {key: data.read_trial(trial) for key, trial in trials.items()}
    own = {"seed": 0, "files": {}, "keeps_model": True}
    assert found[40, 1] | own == found[40, 0] | own
    assert data.trials_before(trials[40, 1]) == [trials[40, 0]]
    assert data.trials_before(trials[10, 1]) == ([trials[40, 0]] if arm == "lsa" else [])
    if arm == "tfidf":
        kept = [data.probabilities_file(trials[40, seed]).read_bytes() for seed in (0, 1)]
        assert kept[0] == kept[1]


def test_lsa_learns_once_from_the_corpus_and_from_train_alone(files, tmp_path, monkeypatch):
    monkeypatch.setattr(cooccurrence, "MOST_CONTEXTS", 64)  # to be quick
    config = small_config(files, arms=["lsa"], budgets=[10], seeds=2)
    data = prepare(config, MODEL, tmp_path / "study", "cpu", lambda line: None)
    with open(files["corpus"]) as lines:
        corpus = [line.rstrip("\n") for line in lines]
    assert sorted(lsa_texts(data)) == sorted(corpus + data.sets()["train"].whole_texts)
    first, second = trials_of(data.config.study)
    trial_module.run_trial(data, first, lambda share: None)
    monkeypatch.setattr(trial_module, "fit_lsa", None)
    trial_module.run_trial(data, second, lambda share: None)
    assert data.trial_file(second).exists()
