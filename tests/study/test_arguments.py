"""The settings of a study from flags or keywords: each in its part, over a file, over the defaults."""

import pytest
from expected_errors import refused

from headstart.config.study import SETTINGS, FinetunePart, PretrainPart, StudyConfig, StudyPart
from headstart.study.arguments import EVERY, asked_for


def config_of(config, more_arms=(), **given):
    return asked_for(config, given, more_arms=more_arms).config


def test_what_is_given_wins_even_with_its_default_value():
    config = StudyConfig(study=StudyPart(seed=5, precision="fp32"))
    asked = config_of(config, seed=0, precision="auto").study
    assert (asked.seed, asked.precision) == (0, "auto")
    kept = config_of(config).study
    assert (kept.seed, kept.precision) == (5, "fp32")


def test_a_setting_goes_to_its_part():
    config = StudyConfig(pretrain=[PretrainPart(steps=9), PretrainPart(steps=8)])
    found = config_of(
        config, text_column="review", documents="line", budgets=(50, 200), objective=("masked",),
        batch=4, pretrain_epochs=2.0, length=64, learning_rates=(1e-4,), tokenizer="tok", seeds=2, vocab=300,
    )  # fmt: skip
    assert (found.study.budgets, found.study.objectives, found.study.seeds) == ([50, 200], ["masked"], 2)
    assert [(phase.epochs, phase.steps, phase.length, phase.documents) for phase in found.pretrain] == [
        (2.0, 0, 64, "line")
    ] * 2
    assert (found.finetune.batch, found.finetune.length, found.finetune.learning_rates) == (4, 64, [1e-4])
    assert (found.tokenizer.tokenizer, found.tokenizer.vocab, found.reading.text_column) == ("tok", 300, "review")


def test_fields_of_the_model_and_the_names_of_what_is_given_are_kept_apart():
    asked = asked_for(StudyConfig(), {"width": 64, "seeds": 5, "seed": 1, "epochs": None})
    assert asked.model == {"width": 64}
    assert asked.given == {"study.seeds", "study.seed"}


def test_what_is_not_given_stays():
    config = StudyConfig(study=StudyPart(seeds=7), finetune=FinetunePart(batch=3))
    assert config_of(config) == config


def test_more_arms_are_added_once():
    assert config_of(StudyConfig(), more_arms=["shuffled", "majority"]).study.arms[-1] == "shuffled"
    assert config_of(StudyConfig(), arms=("tfidf",), more_arms=["shuffled"]).study.arms == ["tfidf", "shuffled"]


def test_where_a_study_begins(tmp_path):
    assert asked_for(None, {}).config.study.demo == "plain"
    assert asked_for(None, {"demo": "null"}).config.study.demo == "null"
    found = asked_for(None, {"train": "rows/t.csv"}, corpus=["a.txt"])
    assert found.config.pretrain[0].corpus == ["a.txt"]
    assert (found.config.study.time, str(found.out)) == ("30m", "studies/t")
    assert asked_for(None, {}, has_data=True).config.study.demo == "", "a table in memory is no demo"
    file = tmp_path / "s.toml"
    file.write_text('[study]\nseeds = 5\n[model]\nwidth = 8\n[[pretrain]]\ncorpus = ["b.txt"]\n')
    asked = asked_for(file, {"depth": 2})
    assert (asked.config.pretrain[0].corpus, asked.model) == (["b.txt"], {"width": 8, "depth": 2})
    assert {"study.seeds", "pretrain.corpus"} <= asked.given
    assert asked_for(file, {}, corpus=["c.txt"]).config.pretrain[0].corpus == ["c.txt"]


@pytest.mark.parametrize(
    ("given", "code", "names"),
    [
        ({"demo": "plain", "train": "t.csv"}, "conflict", ["--demo", "--corpus", "--train"]),
        ({"test": "t.csv"}, "missing", ["--train"]),
        ({"text_colum": "review"}, "unknown-name", ["text_colum", "text_column"]),
        ({"seeds": "5"}, "bad-value", ["seeds", "int"]),
        ({"seeds": 0}, "bad-value", ["seeds", "--seeds"]),
        ({"budgets": 200}, "bad-value", ["budgets"]),
        ({"positions": "sine"}, "bad-value", ["positions", "sinusoidal"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(given, code, names):
    with refused(code, *names):
        asked_for(None, given)


def test_no_name_stands_for_two_settings():
    assert len(EVERY) > len(SETTINGS) + 20
    assert all(setting.name == name for name, setting in EVERY.items())
