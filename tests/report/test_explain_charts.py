"""The pictures of `explain`: a file of their own, the same for the same numbers."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from headstart.report.explain_charts import cost_chart, mask_chart, positions_chart


def mask(length, padded=0):
    padding = np.arange(length) >= length - padded
    return mask_chart(np.tril(np.ones((length, length), bool)), [f"${i}" for i in range(length)], "a mask", padding)


def positions(shift=0.0):
    return positions_chart(np.sin(shift + np.outer(np.arange(20), np.arange(16))))


def cost(crossings=((20.0, 1.5), (40.0, 2.0))):
    lines = {"attention": [1.0, 2.0, 3.0], "recurrence": [2.0, 3.0, 4.0]}
    return cost_chart([16, 32, 64], lines, lines, 32, crossings, "cpu")


@pytest.mark.parametrize(
    ("draw", "other"),
    [
        (lambda: mask(6), lambda: mask(6, padded=1)),
        (lambda: mask(50), lambda: mask(51)),
        (positions, lambda: positions(1.0)),
        (cost, lambda: cost(())),
    ],
    ids=["mask", "large mask", "positions", "cost"],
)
def test_the_same_numbers_give_the_same_bytes_and_others_others(draw, other):
    picture = draw()
    assert ET.fromstring(picture).tag.endswith("svg")
    assert draw() == picture != other()


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_chart_is_drawn_in_the_form_that_is_asked_for(form):
    lines = {"attention": [1.0, 2.0]}
    begins = {"svg": b"<?xml", "png": b"\x89PNG"}[form]
    assert cost_chart([16, 32], lines, lines, 32, [], "cpu", form).startswith(begins)
