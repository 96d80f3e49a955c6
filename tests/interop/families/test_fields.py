"""Fields of a foreign config.json: each of its type, none passed over."""

import pytest
from expected_errors import refused

from headstart.interop.families.fields import Fields

FIELDS = Fields({"n": 3, "x": 0.5, "yes": True, "word": "relu", "none": None, "minus": -1, "odd": [1]}, "config.json")


def test_values_are_of_the_type_that_is_asked_for():
    assert FIELDS.integer("n") == 3
    assert FIELDS.number("n") == 3.0
    assert FIELDS.number("x") == 0.5
    assert FIELDS.flag("yes") is True
    assert FIELDS.text("word") == "relu"
    assert FIELDS.one_of("word", {"relu": "our relu"}) == "our relu"


def test_what_is_missing_or_null_has_the_default():
    assert FIELDS.integer("missing", 7) == 7
    assert FIELDS.integer("none", 7) == 7
    with refused("missing", "config.json", " missing"):
        FIELDS.integer("missing")


@pytest.mark.parametrize(
    "ask",
    [
        lambda: FIELDS.integer("minus"),
        lambda: FIELDS.integer("yes"),
        lambda: FIELDS.integer("x"),
        lambda: FIELDS.number("yes"),
        lambda: FIELDS.number("word"),
        lambda: FIELDS.flag("n"),
        lambda: FIELDS.text("odd"),
        lambda: FIELDS.one_of("word", {"gelu": 1}),
        lambda: FIELDS.must_be("n", 4, 5),
        lambda: FIELDS.must_be("yes", 1),
    ],
)
def test_another_type_or_value_is_refused(ask):
    with refused("unsupported", "config.json: "):
        ask()


def test_a_field_that_nobody_reads_is_refused_and_harmless_ones_pass():
    Fields({"a": 1, "torch_dtype": "float16", "pruned_heads": {}}, "config.json").refuse_unknown(["a"])
    with refused("unknown-name", "b is 2"):
        Fields({"a": 1, "b": 2}, "config.json").refuse_unknown(["a"])
    with refused("unsupported", "pruned_heads"):
        Fields({"pruned_heads": {"0": [1]}}, "config.json").refuse_unknown([])
    with refused("unsupported", "auto_map"):
        Fields({"auto_map": {}}, "config.json").refuse_unknown(["auto_map"])
