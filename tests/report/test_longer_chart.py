"""The chart of losses beyond the trained length: one drawing for the same data, a line for each kind."""

import xml.etree.ElementTree as ElementTree

from headstart.report.charts import BLUE, GREEN, ORANGE, longer_chart

LINES = {
    "sinusoidal": [(16.5, 4.0), (48.5, 3.9), (80.5, 5.5), (112.5, 6.0)],
    "learned": [(16.5, 4.1), (28.5, 4.0)],
    "rotary": [(16.5, 3.9), (48.5, 3.8), (80.5, 3.9), (112.5, 4.1)],
}


def drawn(lines=LINES, ends=None):
    return longer_chart(lines, 32, 128, {"learned": "refused beyond"} if ends is None else ends)


def test_the_same_data_give_the_same_bytes_and_other_data_others():
    assert drawn() == drawn()
    assert drawn() != drawn({**LINES, "rotary": [(16.5, 3.9), (48.5, 3.9)]})


def test_it_is_an_svg_with_a_line_for_each_kind():
    picture = drawn()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    for colour in (BLUE, ORANGE, GREEN):
        assert colour.lower() in picture
    assert GREEN.lower() not in drawn({kind: LINES[kind] for kind in ("sinusoidal", "learned")})


def test_a_kind_that_ends_is_crossed():
    assert drawn().count(ORANGE.lower()) > drawn(ends={}).count(ORANGE.lower())
