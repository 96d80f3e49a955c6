"""The chart of losses beyond the trained length: one drawing for the same data, a line for each kind."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from headstart.report.figures import BLUE, GREEN, ORANGE

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

LINES = {
    "sinusoidal": [(16.5, 4.0), (48.5, 3.9), (80.5, 5.5), (112.5, 6.0)],
    "learned": [(16.5, 4.1), (28.5, 4.0)],
    "rotary": [(16.5, 3.9), (48.5, 3.8), (80.5, 3.9), (112.5, 4.1)],
}


@pytest.fixture
def draw_chart(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import longer

    def draw(lines=LINES, ends=None):
        return longer.longer_chart(lines, 32, 128, {"learned": "refused beyond"} if ends is None else ends)

    return draw


def test_the_same_data_give_the_same_bytes_and_other_data_others(draw_chart):
    assert draw_chart() == draw_chart()
    assert draw_chart() != draw_chart({**LINES, "rotary": [(16.5, 3.9), (48.5, 3.9)]})


def test_it_is_an_svg_with_a_line_for_each_kind(draw_chart):
    picture = draw_chart()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    for colour in (BLUE, ORANGE, GREEN):
        assert colour.lower() in picture
    assert GREEN.lower() not in draw_chart({kind: LINES[kind] for kind in ("sinusoidal", "learned")})


def test_a_kind_that_ends_is_crossed(draw_chart):
    assert draw_chart().count(ORANGE.lower()) > draw_chart(ends={}).count(ORANGE.lower())
