"""The answer of a plan: fits or not, what would fit, and durations as people say them."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.planning.figures import answer, format_bytes, format_duration
from headstart.planning.machines import CARDS, GIB, cpu
from headstart.planning.memory import largest_fitting, training_memory
from headstart.planning.time import paper_prices, step_seconds
from headstart.planning.workload import Lengths, Workload


def workload(batch=32, **rest):
    config = preset("modern-small", vocab=16_000)
    head = HeadConfig(kind="lm")
    return Workload(config=config, head=head, batch=batch, lengths=Lengths(512), device="cuda", **rest)


def test_what_fits_says_so_with_its_time():
    card = CARDS["h200"]
    prices = paper_prices(card, "fp32")
    each = step_seconds(workload(), prices).total
    verdict = answer(workload(), card, prices, round(2460 / each))
    assert verdict.fits
    assert verdict.sentence.startswith(f"fits, 41 minutes for {round(2460 / each):,} steps on NVIDIA H200 (")


def test_cores_are_counted_in_words():
    machine = cpu(2, 64 * GIB)
    assert "for 3 steps on 2 cores" in answer(workload(1), machine, paper_prices(machine, "fp32"), 3).sentence


def test_what_does_not_fit_says_what_would():
    card = dataclasses.replace(CARDS["1060"], memory=4 * GIB)
    verdict = answer(workload(), card, paper_prices(card, "fp32"), 60)
    assert not verdict.fits
    assert verdict.sentence.startswith("does not fit in 4 GB: ")
    assert f"batch {verdict.largest_batch} fits, or `--accumulate {verdict.accumulate}`" in verdict.sentence
    fitting = workload(verdict.largest_batch)
    too_large = workload(verdict.largest_batch + 1)
    assert training_memory(fitting).total <= card.memory < training_memory(too_large).total
    cut = workload(accumulate=verdict.accumulate)
    assert training_memory(cut).total <= card.memory
    less = workload(accumulate=verdict.accumulate - 1)
    assert training_memory(less).total > card.memory


def test_what_never_fits_asks_for_a_smaller_model():
    card = dataclasses.replace(CARDS["1050ti"], memory=GIB // 2)
    verdict = answer(workload(), card, paper_prices(card, "fp32"))
    assert (verdict.fits, verdict.largest_batch, verdict.accumulate) == (False, 0, 0)
    assert "--width" in verdict.sentence


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_largest_that_fits_is_found(limit, most):
    assert largest_fitting(lambda number: number <= limit, most) == min(limit, most)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0021, "2.1 milliseconds"),
        (1.0, "1 second"),
        (59.6, "60 seconds"),
        (2460.0, "41 minutes"),
        (7300.0, "2 hours"),
        (86_400.0 * 12.3, "12 days"),
    ],
)
def test_durations_in_words(seconds, words):
    assert format_duration(seconds) == words


def test_gigabytes_are_those_of_cards():
    assert format_bytes(8 * GIB) == "8 GB"
    assert format_bytes(9.6 * GIB) == "9.6 GB"
    assert format_bytes(5 * 2**20) == "5 MB"
