"""The order of examples: all of them once an epoch, whatever came before, for any number of ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.text.order import examples_at, for_rank, shuffled

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


@given(st.integers(0, 40), st.integers(1, 9))
def test_the_ranks_together_have_the_global_batch(size, world):
    batch = np.arange(size) * 3
    shares = [for_rank(batch, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(shares).tolist()) == batch.tolist()
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert [for_rank(batch.tolist(), rank, world) for rank in range(world)] == [s.tolist() for s in shares]
