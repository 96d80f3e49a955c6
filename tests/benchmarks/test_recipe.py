"""The recipe of cls-books: what it says of itself is so, it runs as it is, and it can be chosen without test."""

import dataclasses
import gzip
import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from expected_errors import refused

from headstart.config.study import FinetunePart, PretrainPart, StudyConfig, StudyPart
from headstart.config.toml import to_toml
from headstart.data.labelled import read_labelled
from headstart.data.leakage.text_key import text_key
from headstart.demo.corpus import reviews
from headstart.errors import UserError
from headstart.study.design import check
from headstart.training.optimizers.optimizer import learning_rate_factor

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FILE = BENCHMARKS / "cls-books.toml"


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import recipe

    return recipe


# ---- the file -----------------------------------------------------------------------------------------------


def test_the_file_can_be_read_and_takes_the_tokens_that_it_says(recipe):
    config, model = recipe.read_recipe(FILE, Path("data"))
    check(config)
    assert model == {"embedding_norm": True}
    tokens = sum(phase.steps * phase.batch_tokens for phase in config.pretrain)
    assert tokens == pytest.approx(560.3e6, rel=1e-3)
    said = FILE.read_text()
    for phase in config.pretrain:
        assert f"({phase.steps:,})" in said
        assert phase.batch_tokens % phase.length == 0
    assert config.pretrain[1].corpus[0] == "data/fr-reviews/train.txt.gz=4"
    assert config.finetune.test == "data/cls-books/test.jsonl.gz"


def test_the_text_of_test_is_in_no_phase_and_chooses_nothing(recipe):
    config, _ = recipe.read_recipe(FILE, Path("data"))
    read = [path for phase in config.pretrain for path in (*phase.corpus, phase.valid)]
    assert not [path for path in (*read, config.finetune.valid) if "test" in path]


def test_the_second_phase_begins_at_the_rate_that_the_first_ends_with(recipe):
    first, second = recipe.read_recipe(FILE, Path("data"))[0].pretrain
    assert (first.learning_rate, first.muon_lr) == (second.learning_rate, second.muon_lr)
    factors = {}
    for name, phase in (("first", first), ("second", second)):
        factors[name] = [learning_rate_factor(phase, step, phase.steps) for step in range(phase.steps)]
    assert factors["first"][-1] == 1.0
    assert max(factors["second"]) == pytest.approx(1.0, abs=0.02)
    assert factors["second"][-1] < 0.001


# ---- other settings -----------------------------------------------------------------------------------------


def test_settings_are_changed_by_their_name(recipe):
    config = recipe.read_recipe(FILE, Path("data"))
    changes = [
        "study.preset=tiny", "pretrain.length=64", "pretrain.2.steps=5", "finetune.learning_rates=[1e-4, 2e-4]",
        "finetune.r_drop=0", "model.width=32",
    ]  # fmt: skip
    found, model = recipe.changed(config, changes)
    assert (found.study.preset, found.finetune.learning_rates, found.finetune.r_drop) == (
        "tiny",
        [1e-4, 2e-4],
        0.0,
    )
    assert [(phase.length, phase.steps) for phase in found.pretrain] == [(64, 5700), (64, 5)]
    assert model == {"embedding_norm": True, "width": 32}
    assert recipe.changed(config, []) == config


@pytest.mark.parametrize("change", ["finetune.rdrop=1", "tuning.r_drop=1", "finetune.r_drop", "finetune.1.batch=2"])
def test_a_setting_that_there_is_not_is_refused(recipe, change):
    with pytest.raises(UserError):
        recipe.changed((StudyConfig(), {}), [change])


# ---- folds --------------------------------------------------------------------------------------------------


def labelled_files(directory, repeated=3):
    """Train and valid, some texts of train in valid again; and no test."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = [{"text": r.french, "label": r.label} for r in reviews(0, "train", count=60)]
    again = [{**row, "text": row["text"].upper()} for row in rows[:repeated]]
    for name, lines in (("train", rows[:40]), ("valid", rows[40:] + again)):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {name: str(directory / f"{name}.jsonl") for name in ("train", "valid", "test")}
    return StudyConfig(study=StudyPart(budgets=[40]), finetune=FinetunePart(**files))


def test_every_row_is_scored_once_and_never_learned_from_beside(recipe, tmp_path):
    config = labelled_files(tmp_path / "data")
    scored = Counter()
    for directory, one in recipe.in_folds(config, tmp_path / "folds"):
        assert directory.parent == tmp_path / "folds"
        sets = {name: read_labelled(getattr(one.finetune, name)) for name in ("train", "valid", "test")}
        keys = {name: {text_key(text) for text in rows.texts} for name, rows in sets.items()}
        assert not keys["test"] & (keys["train"] | keys["valid"])
        assert not keys["valid"] & keys["train"]
        assert sum(map(len, sets.values())) == 63
        share = np.mean([label == sets["test"].labels[0] for label in sets["test"].labels])
        assert 0.3 < share < 0.7
        assert one.study.budgets == [min(40, len(sets["train"]))]
        scored.update(sets["test"].texts)
        directory.mkdir(exist_ok=True)  # where the study would have left its settings
        (directory / "study.toml").write_text(to_toml({"study": {"budgets": [40]}}))
    assert sum(scored.values()) == 63
    assert not (tmp_path / "data" / "test.jsonl").exists()


def test_a_pretraining_that_reads_no_text_that_is_scored(recipe, tmp_path):
    config = labelled_files(tmp_path / "data")
    corpus = ["elsewhere.txt", f"{config.finetune.train}=3", f"{config.finetune.valid}=0.5"]
    config = dataclasses.replace(config, pretrain=[PretrainPart(corpus=corpus), PretrainPart(corpus=corpus[:1])])
    one = recipe.unread(config, tmp_path / "unread")
    files = one.finetune
    assert [phase.corpus for phase in one.pretrain] == [
        ["elsewhere.txt=1", f"{files.train}=3", f"{files.valid}=0.5"],
        ["elsewhere.txt=1"],
    ]
    sets = {name: read_labelled(getattr(files, name)) for name in ("train", "valid", "test")}
    keys = {name: {text_key(text) for text in rows.texts} for name, rows in sets.items()}
    assert not keys["test"] & (keys["train"] | keys["valid"])
    assert sum(map(len, sets.values())) == 63
    assert 20 <= len(sets["test"]) <= 30
    assert one.study.budgets == [min(40, len(sets["train"]))]


def test_a_pretraining_of_other_settings_is_not_taken(recipe, tmp_path):
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "study.toml").write_text(to_toml({"tokenizer": {"vocab": 500}}))
    with refused("bad-value", str(tmp_path / "before"), "vocab", "--pretrained"):
        recipe.with_pretraining(StudyConfig(), tmp_path / "before", tmp_path / "after")
    (tmp_path / "before" / "study.toml").write_text("")
    found = recipe.with_pretraining(StudyConfig(), tmp_path / "before", tmp_path / "after")
    assert found.tokenizer.tokenizer == str(tmp_path / "before" / "tokenizer")


# ---- the whole of it ----------------------------------------------------------------------------------------


def as_shared_data(directory):
    """The embedded corpus under the names of the files that the recipe reads; no row of test but its own."""
    texts = [review.french for review in reviews(0, "unlabelled", count=400)]
    for name, lines in (
        ("fr-reviews", texts[:200]),
        ("fr-synopses", texts[200:300]),
        ("fr-novels", texts[300:]),
    ):
        for part, chosen in (("train", lines[10:]), ("valid", lines[:10])):
            path = directory / name / f"{part}.txt.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress("\n".join(chosen).encode()))
    (directory / "cls-books").mkdir()
    for part, count in (("train", 80), ("valid", 40), ("test", 60)):
        rows = [{"text": r.french, "label": r.label} for r in reviews(0, part, count=count)]
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (directory / "cls-books" / f"{part}.jsonl.gz").write_bytes(gzip.compress(data))
    return directory


TINY = [
    "study.preset=tiny", "model.width=32", "model.depth=1", "pretrain.steps=20", "pretrain.length=64",
    "pretrain.batch_tokens=512", "tokenizer.vocab=500", "finetune.length=64", "finetune.epochs=2",
    "finetune.least_steps=8", "finetune.learning_rates=[1e-3]",
]  # fmt: skip


@pytest.mark.slow
def test_the_recipe_runs_in_folds_and_then_on_test_over_one_pretraining(recipe, tmp_path, monkeypatch, capsys):
    import studies

    data = as_shared_data(tmp_path / "data")
    monkeypatch.setenv("HEADSTART_DATA", str(data))
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))

    def ask(*more):
        words = ["studies.py", "best", "--out", str(tmp_path / "out"), "--device", "cpu", "--jobs", "2"]
        words += ["--seeds", "2", "--budgets", "50", *more]
        monkeypatch.setattr(sys, "argv", [*words, *(word for one in TINY for word in ("--set", one))])
        studies.main()
        return capsys.readouterr().out

    test = data / "cls-books" / "test.jsonl.gz"
    test.rename(data / "not-yet")
    out = ask("--valid-only", "--arms", "tfidf,finetuned")
    assert [line.split()[0] for line in out.splitlines()] == ["tfidf", "finetuned"]
    assert re.search(r"finetuned +50 labels +[\d.]+ ± [\d.]+ +\(([\d.]+ ?){5}\)", out)
    out = ask("--unread", "--arms", "tfidf", "--set", "study.pretrain_seeds=1")
    assert re.search(r"tfidf +50 labels +[\d.]+ \(", out)
    (data / "not-yet").rename(test)

    folds = tmp_path / "out" / "best-folds"
    runs = sorted((folds / "fold-1" / "pretrain").iterdir())
    assert [run.name for run in runs] == ["masked-s0", "masked-s0-phase-1", "masked-s1", "masked-s1-phase-1"]
    before = [run.stat().st_mtime_ns for run in runs]
    out = ask("--pretrained", str(folds / "fold-1"), "--arms", "majority,tfidf,scratch,finetuned")
    assert [run.stat().st_mtime_ns for run in runs] == before
    found = json.loads((tmp_path / "out" / "best" / "study.json").read_bytes())
    assert {trial["status"] for trial in found["trials"]} == {"done"}
    assert {(t["arm"], t["seed"]) for t in found["trials"]} == {
        (arm, seed) for arm in ("majority", "tfidf", "scratch", "finetuned") for seed in range(2)
    }
    assert all(np.isfinite(point["loss"]) for base in found["pretraining"] for point in base["curve"])
