"""The order of examples: all of them once an epoch, whatever came before, for any number of ranks."""

import numpy as np
import pytest
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.sampler import LengthBuckets, examples_at, shuffled
from headstart.randomness import stream

COUNTS = st.integers(1, 300) | st.sampled_from([1, 2, 3, 4, 5, 16, 17, 255, 256, 257])


@given(COUNTS, st.integers(0, 2**62), st.integers(0, 50))
def test_an_epoch_has_every_example_once(count, seed, epoch):
    assert sorted(shuffled(np.arange(count), count, seed, "x", epoch)) == list(range(count))


@given(st.integers(1, 40), st.integers(1, 90), st.integers(0, 9))
@settings(deadline=None)
def test_batches_one_after_another_have_every_example_once_an_epoch(count, batch, seed):
    steps = -(-3 * count // batch)  # the last batch may go on
    batches = [examples_at(count, seed, "x", step, batch) for step in range(steps)]
    assert all(len(numbers) == batch for numbers in batches)
    numbers = np.concatenate(batches)
    for epoch in range(3):
        assert sorted(numbers[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(COUNTS, st.integers(1, 20), st.lists(st.integers(0, 500), min_size=1, max_size=5))
def test_what_was_asked_before_does_not_matter(count, batch, history):
    direct = examples_at(count, 7, "x", history[-1], batch)
    for step in history:
        last = examples_at(count, 7, "x", step, batch)
    assert last.tolist() == direct.tolist()


def test_epochs_seeds_and_purposes_differ():
    orders = {
        (seed, purpose, epoch): tuple(shuffled(np.arange(100), 100, seed, purpose, epoch))
        for seed in range(4)
        for purpose in ("a", "b")
        for epoch in range(4)
    }
    assert len(set(orders.values())) == len(orders)


def test_seeds_and_steps_do_not_add_up():
    assert examples_at(50, 1, "x", 5, 10).tolist() != examples_at(50, 2, "x", 4, 10).tolist()


@pytest.mark.parametrize("count", [3, 24, 1000])
def test_every_example_is_as_likely_as_another_at_every_place(count):
    """Chi-squared over places: with 2,000 orders each first and last place gets its share."""
    orders = np.array([shuffled(np.array([0, count - 1]), count, seed, "x", 0) for seed in range(2000)])
    for column in orders.T:
        bins = np.bincount(column * min(count, 20) // count, minlength=min(count, 20))
        expected = 2000 * np.bincount(np.arange(count) * min(count, 20) // count) / count
        statistic = ((bins - expected) ** 2 / expected).sum()
        assert statistic < 50  # 19 degrees of freedom at most: one in 10,000


def test_neighbours_are_not_kept_together():
    order = shuffled(np.arange(10_000), 10_000, 0, "x", 0)
    assert (np.abs(np.diff(order)) == 1).sum() < 10  # two are expected
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05


def test_a_huge_count_needs_no_memory():
    places = np.array([0, 1, 10**12 - 1])
    numbers = shuffled(places, 10**12, 3, "x", 0)
    assert ((numbers >= 0) & (numbers < 10**12)).all()
    assert len(set(numbers.tolist())) == 3


# ---- buckets: within the budget, with little padding

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=60).map(np.array)
PAIRS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=60).map(np.array)


@given(LENGTHS | PAIRS, st.integers(1, 20), st.integers(1, 4), st.integers(0, 9), st.integers(0, 5))
def test_by_number_every_example_comes_once_an_epoch(lengths, batch, windows, seed, epoch):
    buckets = LengthBuckets(lengths, batch_examples=batch, window_batches=windows)
    count = -(-len(lengths) // batch)
    assert buckets.batch_count(seed, epoch) == count
    batches = [buckets.examples_at(seed, epoch * count + number) for number in range(count)]
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert sorted(map(len, batches), reverse=True)[: len(lengths) // batch] == [batch] * (len(lengths) // batch)


@given(LENGTHS | PAIRS, st.integers(0, 200), st.integers(1, 4), st.integers(0, 9))
@settings(deadline=None)
def test_by_tokens_every_example_comes_once_an_epoch_within_the_budget(lengths, spare, windows, seed):
    rows = lengths.reshape(len(lengths), -1)
    budget = int(rows.sum(1).max()) + spare
    buckets = LengthBuckets(lengths, batch_tokens=budget, window_batches=windows)
    step = 0
    for epoch in range(3):
        batches = []
        for number in range(buckets.batch_count(seed, epoch)):
            assert buckets.position_of(seed, step) == (epoch, number)
            batches.append(buckets.examples_at(seed, step))
            step += 1
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
        assert all(len(batch) * rows[batch].max(0).sum() <= budget for batch in batches)


@given(LENGTHS, st.lists(st.integers(0, 80), min_size=1, max_size=4))
def test_buckets_asked_before_do_not_matter(lengths, history):
    budget = int(lengths.max()) + 20
    used = LengthBuckets(lengths, batch_tokens=budget)
    for step in history:
        last = used.examples_at(1, step)
    assert last.tolist() == LengthBuckets(lengths, batch_tokens=budget).examples_at(1, history[-1]).tolist()


def lognormal(count, columns=1):
    draws = stream(0, "lengths")
    source = draws.lognormal(3, 0.6, count).astype(int) + 1
    if columns == 1:
        return source
    return np.stack([source, np.maximum(1, source + draws.integers(-3, 4, count))], axis=1)


@pytest.mark.parametrize("columns", [1, 2])
def test_like_lengths_come_together(columns):
    lengths = lognormal(5_000, columns)
    rows = lengths.reshape(len(lengths), -1)

    def share_of_padding(batches):
        padded = sum(len(batch) * rows[batch].max(0).sum() for batch in batches)
        return 1 - rows.sum() / padded

    buckets = LengthBuckets(lengths, batch_tokens=2_000)
    order = stream(0, "plain").permutation(len(rows))
    plain = np.array_split(order, buckets.batch_count(0, 0))
    assert share_of_padding(buckets.plan(0, 0)) < 0.12
    assert share_of_padding(plain) > 0.4


def test_companions_and_the_order_of_batches_change_every_epoch():
    buckets = LengthBuckets(lognormal(500), batch_examples=10)
    plans = [{tuple(sorted(batch.tolist())) for batch in buckets.plan(0, epoch)} for epoch in range(2)]
    assert len(plans[0] & plans[1]) < 5
    first_lengths = [int(buckets.lengths[batch].max()) for batch in buckets.plan(0, 0)]
    assert first_lengths != sorted(first_lengths)
    assert abs(np.corrcoef(first_lengths, np.arange(len(first_lengths)))[0, 1]) < 0.5


def test_seeds_and_steps_of_buckets_do_not_add_up():
    buckets = LengthBuckets(lognormal(500), batch_examples=10)
    assert buckets.examples_at(1, 5).tolist() != buckets.examples_at(2, 4).tolist()
    assert [b.tolist() for b in buckets.plan(1, 0)] != [b.tolist() for b in buckets.plan(2, 0)]


def test_an_example_over_the_budget_is_refused_with_its_number():
    with refused("too-large", "3", "12", "11") as caught:
        LengthBuckets(np.array([[3, 4], [5, 5], [6, 6]]), batch_tokens=11)
    assert "--batch-tokens 12" in caught.value.fix


def test_no_examples_are_refused():
    with refused("too-few"):
        LengthBuckets(np.zeros((0, 2)), batch_tokens=100)
