"""The largest sensible model: by time, by text, by memory."""

import dataclasses

import pytest

from headstart.errors import UserError
from headstart.model.presets import HeadConfig
from headstart.plan.choice import MOST_PASSES, Means, candidates, choose, seconds_in
from headstart.plan.machines import CARDS, GIB
from headstart.plan.time import paper_prices

H200 = CARDS["h200"]


def chosen(card=H200, seconds=7200.0, tokens=1e12, **rest):
    prices = paper_prices(card, card.precision)
    means = Means(
        head=HeadConfig(kind="lm"), target=card, prices=prices, precision=card.precision,
        budget_seconds=seconds, corpus_tokens=tokens,
    )  # fmt: skip
    return choose(candidates("modern-small", {"vocab": 16_000, **rest}), means)


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("3d", 259_200), ("45 s", 45)],
)
def test_times_as_people_write_them(text, seconds):
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "2 weeks", "-1h", "0s", "1h and more", "1.2.3h"])
def test_other_times_are_refused(text):
    with pytest.raises(UserError):
        seconds_in(text)
