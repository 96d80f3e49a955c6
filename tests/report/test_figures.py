"""Figures in a page: its colours and fonts, ids of their own, nothing from elsewhere."""

import re
import xml.etree.ElementTree as ET

import pytest

from headstart.report.figures import (
    BLUE,
    INK,
    PAPER,
    css_colour,
    inline_svg,
    new_figure,
    page_styled,
    styled,
    svg,
)


@page_styled
def figure():
    made = new_figure(4, 3, panels=1)
    made.axes[0].plot([0, 1], [0, 1], color=BLUE, marker="s", label="$x^2$ 中文 <b>")
    made.axes[0].legend(facecolor=PAPER, edgecolor=INK)
    return made


@pytest.fixture(scope="module")
def drawings():
    return [page_styled(inline_svg)(figure(), name) for name in ("one", "other")]


def test_every_drawn_colour_is_a_variable_of_the_page(drawings):
    assert css_colour(BLUE.lower()) == "var(--blue)"
    for picture in drawings:
        assert not re.search(r"(fill|stroke): ?(#|rgb|black)", picture)
        assert "stroke: var(--blue)" in picture


def test_drawings_belong_to_the_page(drawings):
    seen = set()
    for picture in drawings:
        root = ET.fromstring(picture)
        assert {node.tag for node in root.iter()} <= {
            "svg",
            "g",
            "defs",
            "path",
            "use",
            "text",
            "clipPath",
            "rect",
        }
        ids = {node.get("id") for node in root.iter() if node.get("id")}
        assert ids == set(re.findall(r"#([\w-]+)", picture))
        assert not seen & ids, "two figures share an id"
        seen |= ids
        assert "http" not in picture
        assert "font-family" not in picture
        assert "$x^2$ 中文 <b>" in [node.text for node in root.iter("text")]


def test_the_same_figure_is_the_same_file():
    assert styled(svg)(figure()) == styled(svg)(figure())
