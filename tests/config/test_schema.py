"""Settings: declared once, checked where they are declared, never overwritten."""

import dataclasses
import math
from typing import Annotated, Literal

import pytest
from expected_errors import refused

from headstart.config.schema import (
    COUNT,
    POSITIVE,
    Bound,
    Settings,
    field,
    fields_of,
    flat,
    settings,
)


class Warm(Settings):
    """A part."""

    warmup: Annotated[float, Bound(0, 1)] = 0.1
    """Share of the steps
    to warm up over."""

    kind: Literal["linear", "cosine"] = "linear"
    """How it decays."""


class Whole(Warm, defaults={"kind": "cosine"}):
    """A part with another default, and more."""

    steps: Annotated[int, POSITIVE] = field(0, identity=False)
    """Updates."""

    keep: Annotated[int, COUNT] = 2
    """Checkpoints."""

    tags: list[str] = field([])
    """Tags."""


def test_a_field_has_its_type_default_sentence_and_bound():
    found = fields_of(Whole)
    assert list(found) == ["warmup", "kind", "steps", "keep", "tags"]
    assert found["warmup"].sentence == "Share of the steps to warm up over."
    assert (found["warmup"].type, found["warmup"].default, found["warmup"].bound) == (float, 0.1, Bound(0, 1))
    assert (found["kind"].default, fields_of(Warm)["kind"].default) == ("cosine", "linear")
    assert found["steps"].flag == "--steps"
    assert [name for name, one in found.items() if not one.is_identity] == ["steps"]


def test_a_list_is_made_anew_for_every_object():
    first = Whole()
    first.tags.append("a")
    assert Whole().tags == []


@pytest.mark.parametrize(
    ("given", "code", "name"),
    [
        ({"warmup": math.nan}, "bad-value", "warmup is nan"),
        ({"warmup": 1.5}, "bad-value", "from 0 to 1"),
        ({"warmup": -math.inf}, "bad-value", "warmup is -inf"),
        ({"steps": 0}, "bad-value", "steps is 0"),
        ({"steps": -3}, "bad-value", "above 0"),
        ({"steps": 2**60}, "bad-value", "steps is"),
        ({"keep": -1}, "bad-value", "keep is -1"),
        ({"kind": "linea"}, "bad-value", "'linear'"),
        ({"warmpu": 0.1}, "unknown-name", "'warmup'"),
        ({"steps": 1.5}, "bad-value", "type int"),
        ({"tags": "a"}, "bad-value", "type list"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, code, name):
    with refused(code, name):
        settings(Whole, given)


def test_numbers_are_checked_however_an_object_is_made():
    with refused("bad-value", "warmup is 7.0"):
        Warm(warmup=7.0)
    with refused("bad-value", "warmup is inf"):
        dataclasses.replace(Warm(), warmup=math.inf)
    assert Whole(steps=0).steps == 0, "the default that stands for not given"


def test_groups_and_single_settings_are_one_flat_table():
    assert flat({"schedule": Warm(warmup=0.2), "steps": 3, "keep": None}) == {"warmup": 0.2, "steps": 3}
    assert "steps" not in flat({"all": Whole()}), "what stands for not given is not given"
    with refused("conflict", "warmup"):
        flat({"schedule": Warm(warmup=0.2), "warmup": 0.3})
    assert flat({"schedule": Warm(), "warmup": 0.3})["warmup"] == 0.3, "a default yields"


def test_what_is_given_goes_before_the_task_and_the_task_before_the_field():
    assert settings(Warm, {}, {"kind": "cosine"}).kind == "cosine"
    assert settings(Warm, {"kind": "linear"}, {"kind": "cosine"}).kind == "linear"
    assert settings(Warm, {"schedule": Warm(kind="linear")}, {"kind": "cosine"}).kind == "linear"


def test_a_part_has_the_fields_that_both_declare():
    whole = Whole(warmup=0.3, steps=5)
    assert whole.part(Warm) == Warm(warmup=0.3, kind="cosine")
    assert Warm(warmup=0.3).part(Whole, keep=7) == Whole(warmup=0.3, kind="linear", keep=7)
