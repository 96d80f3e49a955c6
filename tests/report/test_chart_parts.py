"""How arms look, and where labels stand: no two alike, no two on each other."""

import itertools

import numpy as np
import synthetic_study
from hypothesis import given
from hypothesis import strategies as st

from headstart.report.chart_parts import arm_marks, spaced
from headstart.study.record import ArmRecord, parse

OBJECTIVES = ("causal", "masked", "masked-nsp")
EXTRA = ("frozen", "shuffled", "scratch-long")


def arms_of(**settings):
    return parse(list[ArmRecord], synthetic_study.study(**settings)["arms"], "")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.001, 0.2))
def test_labels_never_overlap_and_stay_in_order(wanted, gap):
    places = spaced(sorted(wanted), gap, 0.0, 1.0)
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(places))
    if gap * (len(wanted) - 1) <= 1:
        assert places[0] >= -1e-9
        assert places[-1] <= 1 + 1e-9


def test_labels_that_are_apart_stay_where_they_are_and_close_ones_make_room_evenly():
    np.testing.assert_allclose(spaced([0.1, 0.5, 0.9], 0.1, 0, 1), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(spaced([0.5, 0.5], 0.1, 0, 1), [0.45, 0.55])


def test_arms_of_the_largest_study_differ_in_colour_and_in_marker():
    marks = arm_marks(arms_of(objectives=OBJECTIVES, extra=EXTRA))
    assert len(marks) == 9
    assert len({mark.colour for mark in marks.values()}) == 9
    assert len({mark.marker for mark in marks.values()}) == 9


def test_arms_of_one_objective_differ_in_colour_and_those_of_several_in_marker():
    every = arm_marks(arms_of(extra=(*EXTRA, "lsa", "combined")))
    assert len({mark.colour for mark in every.values()}) == len(every) == 9
    many = arm_marks(arms_of(objectives=OBJECTIVES, extra=(*EXTRA, "lsa", "combined")))
    assert len({mark.marker for mark in many.values()}) == len(many) == 13


def test_an_arm_looks_the_same_in_every_study():
    small = arm_marks(arms_of())
    many = arm_marks(arms_of(objectives=OBJECTIVES, extra=EXTRA))
    assert all(small[name] == many[name] for name in ("majority", "tfidf", "scratch"))
    assert small["finetuned"].colour == many["finetuned-causal"].colour


def test_more_arms_than_colours_still_have_marks():
    arms = [ArmRecord(name=f"arm{i}", kind="other", title="") for i in range(25)]
    assert len(arm_marks(arms)) == 25
