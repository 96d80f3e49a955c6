"""Dropout on a CPU: the share that was asked for, the same masks for the same seed, and the mean kept."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.kernels.cpu.dropout import STEPS, keep_mask, kept_share


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.999])
def test_the_share_that_is_dropped_is_the_one_asked_for(rate):
    torch.manual_seed(0)
    count = 400_000
    dropped = 1 - keep_mask(count, rate).double().mean().item()
    assert abs(dropped - rate) < 5 * math.sqrt(rate * (1 - rate) / count)
    assert abs(kept_share(rate) - (1 - rate)) <= 0.5 / STEPS


def test_neighbours_are_dropped_independently():
    torch.manual_seed(1)
    kept = keep_mask(400_000, 0.2).double() - 0.8
    for distance in (1, 2, 3, 4, 200):
        both = (kept[:-distance] * kept[distance:]).mean().item()
        assert abs(both) < 5 * 0.16 / math.sqrt(len(kept)), distance


def test_rates_at_the_edges():
    assert keep_mask(1000, 0.0).all()
    assert kept_share(0.0) == 1.0
    assert kept_share(1 - 1e-9) > 0


def test_the_same_seed_gives_the_same_masks_and_the_next_one_is_another():
    torch.manual_seed(3)
    first, second = keep_mask(1001, 0.3), keep_mask(1001, 0.3)
    torch.manual_seed(3)
    assert torch.equal(first, keep_mask(1001, 0.3))
    assert not torch.equal(first, second)


@given(st.integers(0, 40), st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_any_count_gives_as_many(count, seed):
    torch.manual_seed(seed)
    mask = keep_mask(count, 0.5)
    assert mask.shape == (count,)
    assert set(mask.tolist()) <= {0, 1}
