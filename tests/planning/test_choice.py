"""The largest sensible model: by time, by text, by memory."""

import dataclasses

import pytest

from headstart.config.model import HeadConfig
from headstart.planning.choice import MOST_PASSES, Resources, candidates, choose
from headstart.planning.machines import CARDS, GIB
from headstart.planning.time import paper_prices

H200 = CARDS["h200"]


def chosen(card=H200, seconds=7200.0, tokens=1e12, **rest):
    prices = paper_prices(card, card.precision)
    resources = Resources(
        head=HeadConfig(kind="lm"), target=card, prices=prices, precision=card.precision,
        budget_seconds=seconds, corpus_tokens=tokens,
    )  # fmt: skip
    return choose(candidates("modern-small", {"vocab": 16_000, **rest}), resources)


def test_more_time_buys_a_larger_model():
    sizes = [chosen(seconds=seconds).parameters for seconds in (60, 3_600, 86_400)]
    assert sizes == sorted(set(sizes))


def test_it_reads_twenty_tokens_a_parameter_in_time():
    found = chosen()
    tokens = found.steps * found.work.batch * found.work.lengths.source
    assert tokens >= 20 * found.parameters
    assert found.seconds <= 7200
    assert found.bound == "the time"


def test_a_small_corpus_wants_a_small_model_and_is_not_read_for_ever():
    found = chosen(tokens=50e6)
    assert found.bound == "the text"
    assert found.parameters < chosen().parameters
    assert found.passes == pytest.approx(MOST_PASSES, rel=0.05)


def test_a_small_card_cuts_the_batch_before_the_model():
    card = dataclasses.replace(H200, memory=6 * GIB)
    found = chosen(card)
    assert found.work.accumulate > 1
    assert chosen(dataclasses.replace(H200, memory=2 * GIB), seconds=1e9).bound == "the memory"


def test_what_was_given_is_kept():
    shapes = {(config.width, config.depth) for config in candidates("tiny", {"vocab": 100, "width": 320})}
    assert {width for width, _ in shapes} == {320}
    assert len(shapes) > 3
