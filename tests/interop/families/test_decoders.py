"""Rotary positions as configurations of different years write them."""

import pytest
from expected_errors import refused

from headstart.interop.families.decoders import rotary_base
from headstart.interop.families.fields import Fields


@pytest.mark.parametrize(
    ("content", "base"),
    [
        ({}, 10_000),
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_theta": 7e4, "rope_type": "default"}}, 7e4),
        ({"rope_scaling": None, "rope_theta": 2}, 2),
        ({"rope_theta": 9, "rope_parameters": {"rope_theta": 9}}, 9),
    ],
)
def test_the_base_is_found_wherever_it_stands(content, base):
    assert rotary_base(Fields(content, "config.json")) == base


@pytest.mark.parametrize(
    "content",
    [
        {"rope_scaling": {"type": "linear", "factor": 2}},
        {"rope_parameters": {"rope_theta": 1, "rope_type": "yarn"}},
        {"rope_parameters": {"partial_rotary_factor": 0.5}},
    ],
)
def test_scaling_and_a_part_are_refused(content):
    with refused("unsupported", next(iter(content))):
        rotary_base(Fields(content, "config.json"))


def test_two_answers_are_refused():
    with refused("conflict", "8", "9", "config.json"):
        rotary_base(Fields({"rope_theta": 9, "rope_parameters": {"rope_theta": 8}}, "config.json"))
