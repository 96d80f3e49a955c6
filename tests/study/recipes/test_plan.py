"""What a study would do: as the study does it, and nothing written."""

import dataclasses

import pytest
from small_study import MODEL, small_config, write_files

from headstart.study.arguments import Asked
from headstart.study.given_data import given_data
from headstart.study.recipes import plan
from headstart.study.recipes.plan import plan_of, time_sentence
from headstart.study.recipes.recipe import Recipe


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("files"))
    return Asked(small_config(files, arms=["majority", "scratch", "finetuned"], budgets=[10]), MODEL, frozenset())


def test_every_task_is_counted(asked):
    sources = given_data(asked.config, None, None, None, None)
    planned = plan_of(asked, sources, "cpu", lambda line: None)
    seeds = asked.config.study.seeds
    counts = {part.name: part.count for part in planned.forecast.parts}
    assert counts == {
        "pretraining, causal": 1, "majority, 10 labels": seeds, "scratch, 10 labels": seeds,
        "finetuned, 10 labels": seeds, "starting the runs": 1 + 2 * seeds,
    }  # fmt: skip
    assert not planned.has_recipe
    assert planned.forecast.seconds > 0


def test_the_sentences_of_a_plan_are_those_of_the_recipe_alone(asked, monkeypatch):
    def recipe(question, directory, log):
        log("measuring this machine")
        return Recipe({"finetune": {"learning_rates": [0.1, 0.2]}}, ["measuring is done"])

    monkeypatch.setattr(plan, "recipe_of", recipe)
    config = dataclasses.replace(asked.config, study=dataclasses.replace(asked.config.study, time="1h"))
    told = []
    planned = plan_of(asked, given_data(config, None, None, None, None), "cpu", told.append)
    assert planned.has_recipe
    assert planned.sentences == ["measuring is done"]
    assert "measuring this machine" in told


def test_where_the_speed_of_a_machine_is_not_known_nothing_is_said(asked, monkeypatch):
    def unknown(*arguments):
        raise plan.UserError("the card is in no table")

    monkeypatch.setattr(plan.calibration, "this_machine", unknown)
    assert time_sentence(asked.config, MODEL, {}, "cpu") == ""
