"""Flags are made from settings: a flag for each, with its sentence, and what is not given is not given."""

import dataclasses

import pytest
from cyclopts import App

from headstart.cli.options import (
    MODEL,
    READING,
    RUN_READING,
    Common,
    ModelFlags,
    all_but,
    flags,
    generation_flags,
    settings_named,
)
from headstart.cli.study import STUDY
from headstart.config.generation import BEAM_OF_FIVE
from headstart.config.model import ModelConfig
from headstart.config.reading import Reading
from headstart.config.schema import fields_of
from headstart.config.training import LoopConfig, OptimizerConfig


def helps(group):
    return {field.name: field.metadata["help"] for field in dataclasses.fields(group)}


def test_every_field_is_a_flag_with_its_sentence():
    _, nothing = flags(all_but(LoopConfig, "seed"), "Training", 40)
    assert set(helps(nothing)) == LoopConfig.names() - {"seed"}
    assert helps(nothing)["keep"] == f"{LoopConfig.sentence('keep')} [default: 2]"
    assert helps(nothing)["steps"] == LoopConfig.sentence("steps"), "no default that nobody may give"
    assert set(helps(READING)) == Reading.names()
    assert "tokenizer" not in helps(MODEL)
    assert {"width", "depth", "heads"} <= set(helps(MODEL)) <= ModelConfig.names()


@pytest.mark.parametrize("name", [name for name, field in fields_of(ModelConfig).items() if field.type is bool])
def test_a_preset_can_be_overridden_either_way(name):
    app, found = App(result_action="return_value"), []

    @app.default
    def verb(*, model: ModelFlags = MODEL):
        found.append(model.given())

    flag = name.replace("_", "-")
    app([f"--{flag}"], exit_on_error=False)
    app([f"--no-{flag}"], exit_on_error=False)
    assert found == [{name: True}, {name: False}]


def test_help_shows_no_default_where_the_preset_the_run_or_the_recipe_decides():
    assert not any("[default" in text for text in helps(MODEL).values())
    assert helps(RUN_READING)["text_column"].endswith("that the run was trained on.")
    assert "recipe" in helps(STUDY)["preset"]
    assert "study" in helps(STUDY)["time"]


def test_what_is_given_with_its_default_value_is_known_to_be_given():
    assert Common().given == {}
    assert (Common().seed, Common().device, Common().precision, Common().threads) == (0, "auto", "auto", None)
    assert Common(seed=0, precision="auto").given == {"seed": 0, "precision": "auto"}


def test_what_was_not_given_is_left_out():
    annotation, nothing = flags(settings_named("optimizer", "muon_lr", of=OptimizerConfig))
    assert nothing.given() == {}
    made = annotation.__origin__
    assert made(muon_lr=0.1).given() == {"muon_lr": 0.1}


def test_the_defaults_of_a_verb_appear_in_its_help():
    _, nothing = generation_flags("beam", "length_penalty", defaults=BEAM_OF_FIVE)
    assert helps(nothing)["beam"].endswith("[default: 5]")
