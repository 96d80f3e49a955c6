"""The recipe: what is chosen for a text, labels, a machine and a time, on machines whose speed is made up."""

import dataclasses
import json

import checksummed
import pytest
from expected_errors import refused

from headstart.config.study import FinetunePart, PretrainPart, StudyConfig, StudyPart
from headstart.planning import base
from headstart.study.recipes import recipe as module
from headstart.study.recipes.costs import Sizes
from headstart.study.recipes.recipe import Decision, Question, with_recipe

REVIEWS = Sizes([3.2e6], rows=5_000, text_tokens=320, valid_rows=1_000, test_rows=2_500, classes=2)
LAPTOP, GPU = 1e11, 2e14  # operations a second


def question(time="60m", sizes=REVIEWS, given=(), model=None, phase=None, **study):
    config = StudyConfig(
        study=StudyPart(time=time, **study), pretrain=[phase or PretrainPart(corpus=["c"])],
        finetune=FinetunePart(train="t"),
    )  # fmt: skip
    return Question(config, model or {}, sizes, "cpu", frozenset(given))


@pytest.fixture
def decided(monkeypatch):
    """A recipe on a machine of so many operations a second, and the settings with it."""

    def decided(asked, speed=LAPTOP):
        monkeypatch.setattr(module, "stretches", lambda work, machine: [base.step_operations(work) / speed])
        recipe = Decision(asked).recipe()
        assert json.loads(json.dumps(recipe._asdict())) == recipe._asdict()  # what is kept is what was chosen
        return recipe, *asked.answered(recipe.settings)

    return decided


def pretraining_operations(config, model):
    from headstart.config.presets import preset
    from headstart.study.recipes.costs import Workloads

    shape = preset(config.study.preset, **model, vocab=config.tokenizer.vocab)
    works = Workloads(config, shape, REVIEWS, "cpu", "fp32")
    work = works.pretraining(config.pretrain[0], config.study.objectives[0])
    return config.pretrain[0].steps * base.step_operations(work)


def test_a_laptop_gets_a_small_base_and_few_seeds(decided):
    _, config, model = decided(question())
    assert config.study.objectives == ["masked"]
    assert (model["width"], model["depth"]) in [(128, 2), (192, 3), (256, 4)]
    assert config.study.seeds < 5
    assert config.pretrain[0].labelled_texts
    # An hour at 1e11 operations a second: a quarter to two thirds of it for pretraining.
    assert 0.25 * 3.6e14 < pretraining_operations(config, model) < 0.67 * 3.6e14


def test_a_gpu_gets_a_larger_masked_base_several_seeds_and_regularisation(decided):
    _, config, model = decided(question("8m"), GPU)
    assert config.study.objectives == ["masked"]
    assert (model["width"], model["depth"], model["dropout"]) == (512, 6, 0.1)
    assert config.study.seeds >= 2
    assert config.finetune.r_drop == 1.0


@pytest.mark.parametrize("speed", [3e10, LAPTOP, 1e12, 1e13, GPU])
@pytest.mark.parametrize("time", ["10m", "60m", "4h"])
def test_a_shape_gets_about_the_operations_from_which_it_is_the_best(decided, speed, time):
    _, config, model = decided(question(time), speed)
    size = next(s for s in reversed(base.SIZES) if (s.width, s.depth) == (model["width"], model["depth"]))
    first = min(s.operations for s in base.SIZES if (s.width, s.depth) == (size.width, size.depth))
    passes = config.pretrain[0].steps * config.pretrain[0].batch_tokens / 3.2e6
    is_capped = passes > 0.7 * base.MOST_PASSES[config.study.objectives[0]]
    assert pretraining_operations(config, model) > first / 3 or is_capped


def test_a_small_text_gets_a_small_base_however_much_time_there_is(decided):
    tiny = dataclasses.replace(REVIEWS, corpus_tokens=[20_000], rows=100, text_tokens=50)
    assert decided(question("4h", tiny), GPU)[2]["width"] < decided(question("4h"), GPU)[2]["width"] == 512


def test_arms_from_scratch_get_a_higher_learning_rate(decided):
    for speed in (LAPTOP, GPU):
        finetune = decided(question("8m"), speed)[1].finetune
        assert finetune.scratch_learning_rate > min(finetune.learning_rates)


def test_learning_rates_that_are_given_are_those_of_all_arms(decided):
    asked = question("8m")
    given = dataclasses.replace(asked.config.finetune, learning_rates=[2e-4])
    config = decided(asked._replace(config=dataclasses.replace(asked.config, finetune=given)))[1].finetune
    assert config.learning_rates == [2e-4]
    assert (config.scratch_learning_rate, config.frozen_learning_rate) == (None, None)


def test_no_text_is_read_more_often_than_it_can_be_used(decided):
    tiny = dataclasses.replace(REVIEWS, corpus_tokens=[20_000], rows=100, text_tokens=50)
    recipe, config, _ = decided(question("4h", tiny))
    tokens = config.pretrain[0].steps * config.pretrain[0].batch_tokens
    assert tokens <= base.MOST_PASSES[config.study.objectives[0]] * 25_000
    assert "more time would not help" in recipe.sentences[-1]
    assert config.tokenizer.vocab == base.LEAST_VOCAB


def test_what_is_given_is_kept(decided):
    phase = PretrainPart(corpus=["c"], steps=7, batch_tokens=512)
    asked = question(
        phase=phase, preset="lab", budgets=[10], given=["study.seeds", "pretrain.optimizer"], model={"dropout": 0.3}
    )  # fmt: skip
    _, config, model = decided(asked)
    assert (config.study.preset, model) == ("lab", {"dropout": 0.3})
    assert (config.pretrain[0].steps, config.pretrain[0].batch_tokens) == (7, 512)
    assert config.study.seeds == 5  # the default, but given
    assert config.study.budgets == [10]
    assert config.pretrain[0].optimizer == "adamw"
    assert config.pretrain[0].weight_decay == 0.1  # not given


def test_a_time_that_is_too_short_is_said(decided):
    recipe, config, _ = decided(question("1m"))
    assert config.study.seeds == 1
    assert config.study.budgets == [200, 5_000]
    assert any("too short" in sentence for sentence in recipe.sentences)
    assert config.pretrain[0].steps > 1


def test_several_objectives_share_the_time(decided):
    one = decided(question(objectives=["masked"]))[1].pretrain[0].steps
    both = decided(question(objectives=["masked", "causal"]))[1].pretrain[0].steps
    assert both < 0.7 * one


def test_a_kept_recipe_is_not_chosen_again(tmp_path):
    kept = {"settings": {"study": {"seeds": 2}, "model": {"width": 64}}, "sentences": ["As before."]}
    checksummed.write(tmp_path / "recipe.json", kept)
    said = []
    config, model = with_recipe(question(), tmp_path, said.append)
    assert (config.study.seeds, model, said) == (2, {"width": 64}, ["As before."])


def test_steps_that_are_given_are_not_corrected_later(decided):
    assert decided(question())[0].forecast is not None
    assert decided(question(phase=PretrainPart(corpus=["c"], steps=7)))[0].forecast is None


def test_a_time_that_is_none_is_refused():
    with refused("bad-value", "soon"):
        Decision(question("soon"))
