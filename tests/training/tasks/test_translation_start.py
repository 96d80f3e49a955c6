"""Where a translator's weights come from."""

import pytest
import tiny_runs
import translators
from expected_errors import refused

from headstart.config.training import FinetuneSettings
from headstart.training.tasks.arguments import call_of
from headstart.training.tasks.translation import shape_of, start_into_of


def asked(preset, **fields):
    return call_of(FinetuneSettings, {"preset": preset, **fields}, tiny_runs.MACHINE)


@pytest.fixture
def base():
    return tiny_runs.run_of("causal")


@pytest.fixture
def translator():
    return translators.run_of()


def test_a_single_stack_becomes_the_encoder_unless_said_otherwise(base, translator):
    assert start_into_of(base, "") == "encoder"
    assert start_into_of(base, "decoder") == "decoder"
    assert start_into_of(translator, "") == ""
    assert start_into_of(None, "") == ""


def test_a_stack_to_start_into_needs_a_single_one(translator):
    for start in (translator, None):
        with refused("conflict", "--start-into=both"):
            start_into_of(start, "both")


def test_a_single_stack_gets_a_second_one_of_its_shape(base):
    shape = shape_of(asked("tiny", dropout=0.3), base, "encoder")
    own = base.config.model
    assert (shape.depth, shape.decoder_depth, shape.direction) == (own.depth, own.depth, "bidirectional")
    assert (shape.width, shape.heads, shape.dropout) == (own.width, own.heads, 0.3)


def test_a_translator_keeps_its_shape(translator):
    assert shape_of(asked("tiny"), translator, "") == translator.config.model


def test_a_preset_of_one_stack_is_refused():
    with refused("conflict", "the preset tiny", "--decoder-depth"):
        shape_of(asked("tiny"), None, "")
    assert shape_of(asked("transformer-tiny"), None, "").decoder_depth > 0
