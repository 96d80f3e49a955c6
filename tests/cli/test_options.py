"""Flags are made from settings: a flag for each, with its sentence, and what is not given is not given."""

import dataclasses

from headstart.cli.options import MODEL, READING, all_but, flags, generation_flags, settings_named
from headstart.config.generation import BEAM_OF_FIVE
from headstart.config.model import ModelConfig
from headstart.config.reading import Reading
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


def test_what_was_not_given_is_left_out():
    annotation, nothing = flags(settings_named("optimizer", "muon_lr", of=OptimizerConfig))
    assert nothing.given() == {}
    made = annotation.__origin__
    assert made(muon_lr=0.1).given() == {"muon_lr": 0.1}


def test_the_defaults_of_a_verb_appear_in_its_help():
    _, nothing = generation_flags("beam", "length_penalty", defaults=BEAM_OF_FIVE)
    assert helps(nothing)["beam"].endswith("[default: 5]")
