"""The generation configuration: what it refuses, and that flags and routes are made from it."""

import dataclasses

import pytest
from expected_errors import refused

from headstart.config.generation import BEAM_OF_FIVE, SAMPLED, GenerationConfig


def test_the_default_is_greedy():
    config = GenerationConfig()
    assert (config.beam, config.temperature, config.count) == (None, 0.0, 1)
    assert (SAMPLED.beam, SAMPLED.temperature, SAMPLED.top_p) == (None, 0.8, 0.95)
    assert dataclasses.replace(BEAM_OF_FIVE, beam=None) == config


@pytest.mark.parametrize(
    ("wrong", "code", "name"),
    [
        ({"beam": 0}, "bad-value", "beam is 0"),
        ({"beam": 2, "count": 3}, "bad-value", "count is 3 of a beam of 2"),
        ({"count": 101}, "bad-value", "count is 101"),
        ({"length_penalty": 10.5}, "bad-value", "length_penalty is 10.5"),
        ({"beam": 2, "temperature": 1.0}, "conflict", "beam of 2"),
        ({"temperature": float("inf")}, "bad-value", "temperature is inf"),
        ({"top_k": 0}, "bad-value", "top_k is 0"),
        ({"top_p": 1.5}, "bad-value", "top_p is 1.5"),
        ({"min_tokens": -1}, "bad-value", "min_tokens is -1"),
        ({"min_tokens": 5, "max_tokens": 4}, "conflict", "max_tokens is 4, min_tokens 5"),
        ({"max_tokens": 100_001}, "bad-value", "max_tokens is 100001"),
        ({"no_repeat": -1}, "bad-value", "no_repeat is -1"),
    ],
)
def test_values_out_of_range_are_refused(wrong, code, name):
    with refused(code, name):
        GenerationConfig(**wrong)


def test_a_translation_may_be_half_as_long_again_as_its_source_and_ten_tokens():
    assert [GenerationConfig().most_tokens(n) for n in (1, 5, 20)] == [11, 17, 40]
    assert GenerationConfig(min_tokens=30).most_tokens(5) == 30
    assert GenerationConfig(max_tokens=7).most_tokens(50) == 7
    assert GenerationConfig(max_length_ratio=0.0, max_length_extra=3).most_tokens(50) == 3


def test_sampling_with_a_beam_of_one_is_allowed():
    assert GenerationConfig(beam=1, temperature=1.0).temperature == 1.0
