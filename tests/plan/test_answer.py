"""The sentence: fits or not, what would fit, and durations as people say them."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.model.presets import HeadConfig, preset
from headstart.plan.answer import answer, gigabytes, in_words, largest_fitting, needed
from headstart.plan.machines import CARDS, GIB, cpu
from headstart.plan.memory import training_memory
from headstart.plan.operations import Lengths
from headstart.plan.workload import Workload


def workload(batch=32, **rest):
    config = preset("modern-small", vocab=16_000)
    head = HeadConfig(kind="lm")
    return Workload(config=config, head=head, batch=batch, lengths=Lengths(512), device="cuda", **rest)


def test_what_fits_says_so_with_its_time():
    found = answer(workload(), CARDS["h200"], 2460.0)
    assert found.fits
    assert found.sentence.startswith("fits, 41 minutes on NVIDIA H200 (")


def test_cores_are_counted_in_words():
    assert "41 minutes on 2 cores" in answer(workload(1), cpu(2, 64 * GIB), 2460.0).sentence


def test_what_does_not_fit_says_what_would():
    card = dataclasses.replace(CARDS["1060"], memory=4 * GIB)
    found = answer(workload(), card, 60.0)
    assert not found.fits
    assert found.sentence.startswith("does not fit in 4 GB: ")
    assert f"batch {found.largest_batch} fits, or `--accumulate {found.accumulate}`" in found.sentence
    fitting = workload(found.largest_batch)
    too_large = workload(found.largest_batch + 1)
    assert needed(training_memory(fitting), card) <= card.memory < needed(training_memory(too_large), card)
    cut = workload(accumulate=found.accumulate)
    assert needed(training_memory(cut), card) <= card.memory
    less = workload(accumulate=found.accumulate - 1)
    assert needed(training_memory(less), card) > card.memory


def test_what_never_fits_asks_for_a_smaller_model():
    found = answer(workload(), dataclasses.replace(CARDS["1050ti"], memory=GIB // 2), None)
    assert (found.fits, found.largest_batch, found.accumulate) == (False, 0, 0)
    assert "not even batch 1 fits" in found.sentence


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
    assert in_words(seconds) == words


def test_gigabytes_are_those_of_cards():
    assert gigabytes(8 * GIB) == "8 GB"
    assert gigabytes(9.6 * GIB) == "9.6 GB"
    assert gigabytes(5 * 2**20) == "5 MB"
