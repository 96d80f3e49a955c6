"""What a study will cost, from its file and its data."""

import json

import pytest

from headstart.cli.main import run
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.errors import UserError
from headstart.planning.machines import CARDS, cpu
from headstart.planning.parameters import total
from headstart.planning.time import paper_prices
from headstart.study.recipes.costs import StudyDisk
from headstart.study.recipes.forecast import forecast
from headstart.study.settings import read_study

STUDY = """
[study]
seeds = 2
pretrain_seeds = 2
objectives = ["causal", "masked"]
arms = ["majority", "tfidf", "scratch", "frozen", "finetuned", "scratch-long"]
budgets = [10, 40]

[tokenizer]
vocab = 300

[[pretrain]]
corpus = ["{place}/corpus.txt"]
epochs = 2
length = 64
batch_tokens = 256

[finetune]
train = "{place}/train.jsonl"
valid = "{place}/train.jsonl"
test = "{place}/train.jsonl"
batch = 8
epochs = 2
least_steps = 1
learning_rates = [1e-3, 1e-4]
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "corpus.txt").write_text("a" * 102_400)
    rows = [json.dumps({"text": "b" * 118, "label": ("oui", "non")[row % 2]}) for row in range(50)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "study.toml").write_text(STUDY.format(place=tmp_path))
    return tmp_path / "study.toml"


def parts_of(study, target=None):
    target = target or cpu(2)
    return {part.name: part for part in forecast(str(study), target, paper_prices(target, "fp32")).parts}


def test_every_pretraining_and_trial_is_counted_by_hand(study):
    parts = parts_of(study)
    # 25,600 tokens, a tenth held out, twice, in steps of 256.
    assert (parts["pretraining, causal"].count, parts["pretraining, causal"].steps) == (2, 180)
    assert parts["pretraining, masked"].count == 2
    # 40 labels in batches of 8, twice, at two rates; two seeds.
    assert (parts["finetuned-causal, 40 labels"].count, parts["finetuned-causal, 40 labels"].steps) == (2, 20)
    assert parts["finetuned-causal, 10 labels"].steps == 8
    assert parts["majority, 10 labels"].steps == 0
    assert "scratch-long, 10 labels" not in parts


def test_what_costs_more_takes_longer(study):
    parts = parts_of(study)
    assert parts["frozen-causal, 40 labels"].seconds < parts["finetuned-causal, 40 labels"].seconds
    assert parts["scratch-causal, 40 labels"].seconds < parts["scratch-long, 40 labels"].seconds
    assert parts_of(study, CARDS["h200"])["pretraining, causal"].seconds < parts["pretraining, causal"].seconds


def test_the_command_prints_the_whole(study, capsys):
    assert run(["plan", "--study", str(study), "--device", "cpu:2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"] == pytest.approx(sum(part["seconds"] for part in found["parts"]))
    assert "25,600 in the corpus, 32 in a labelled text; 2 learning rates for" in found["assumptions"][0]
    assert 0 < found["disk"]["at_end"] < found["disk"]["at_most"]
    assert run(["plan", "--study", str(study), "--device", "cpu:2"]) == 0
    out = capsys.readouterr().out
    assert "on 2 cores" in out.splitlines()[-1]
    assert "on disk at the end" in out


def test_the_disk_of_a_study_by_hand(study):
    config, fields = read_study(study)
    model = preset(config.study.preset, **fields, vocab=300)
    numbers = total(model, HeadConfig(kind="classification", classes=2))
    base = total(model, HeadConfig(kind="lm"))
    disk = StudyDisk.of(config, model, classes=2, bases=4, jobs=2)
    # Two scratch, a frozen, two fine-tuned and the long scratch; and the study's model.
    assert disk.at_end == 4 * (4 * base + 7 * numbers)
    # Of both jobs two learning rates, and two checkpoints of weights and moments.
    assert disk.at_most - disk.at_end == 4 * 2 * (2 + 2 * 3) * numbers


@pytest.mark.parametrize(("rates", "words"), [("", "3 learning rates"), ("learning_rates = [1e-3]", "1 learning rate")])
def test_the_rates_are_counted_in_figures(study, rates, words):
    study.write_text(study.read_text().replace("learning_rates = [1e-3, 1e-4]", rates))
    target = cpu(2)
    (line,) = forecast(str(study), target, paper_prices(target, "fp32")).assumptions
    assert f"; {words} for every neural trial" in line


def test_a_study_without_its_files_is_refused_with_their_place(study):
    (study.parent / "corpus.txt").unlink()
    with pytest.raises(UserError, match=r"corpus\.txt"):
        parts_of(study)
