"""Schedules by hand and by property: each reaches its peak once warm, and ends where it should."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.training.schedules import SCHEDULES


def values(name, steps=100, warmup=10, cooldown=20):
    return [SCHEDULES[name](step, steps, warmup, cooldown) for step in range(steps)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_warms_up_in_a_straight_line_to_its_peak(name):
    rates = values(name)
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert max(rates) == pytest.approx(1.0)


def test_linear_by_hand():
    assert values("linear")[10] == 1.0
    assert values("linear")[55] == pytest.approx(0.5)
    assert values("linear")[99] == pytest.approx(1 / 90)


def test_cosine_by_hand():
    assert values("cosine")[55] == pytest.approx(0.5)
    assert values("cosine")[40] == pytest.approx((1 + math.cos(math.pi / 3)) / 2)


def test_constant_cools_down_over_the_last_steps():
    rates = values("constant")
    assert rates[10:81] == [1.0] * 71
    assert rates[90] == pytest.approx(0.5)


def test_inverse_sqrt_is_the_papers_formula():
    width, warmup = 512, 4000
    for step in (1, 100, 4000, 16_000, 100_000):
        paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        peak = width**-0.5 * warmup**-0.5
        assert peak * SCHEDULES["inverse-sqrt"](step - 1, 10**6, warmup, 0) == pytest.approx(paper)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 200), st.data())
def test_rates_stay_between_zero_and_one_for_any_numbers(name, steps, data):
    warmup, cooldown = data.draw(st.integers(0, 300)), data.draw(st.integers(0, 300))
    for step in range(steps):
        assert 0 <= SCHEDULES[name](step, steps, warmup, cooldown) <= 1
