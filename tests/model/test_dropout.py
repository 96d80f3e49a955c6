"""Dropout on a CPU: the share that was asked for, the same masks for the same seed, and the mean kept."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.model.dropout import STEPS, Dropout, keep_mask, kept_share


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


def test_what_is_kept_is_scaled_and_the_gradient_goes_the_same_way():
    x = torch.randn(50, 40, dtype=torch.float64, requires_grad=True)
    dropout = Dropout(0.2)
    torch.manual_seed(0)
    y = dropout(x)
    y.sum().backward()
    kept = y != 0
    assert 0.7 < kept.double().mean() < 0.9
    torch.testing.assert_close(y, torch.where(kept, x / kept_share(0.2), 0.0))
    torch.testing.assert_close(x.grad, torch.where(kept, 1 / kept_share(0.2), 0.0).double())


def test_adding_what_is_left_is_dropping_and_adding():
    x, branch = (torch.randn(6, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    dropout = Dropout(0.4)
    torch.manual_seed(5)
    at_once = dropout.add(x, branch)
    slopes = torch.autograd.grad(at_once.square().sum(), (x, branch))
    torch.manual_seed(5)
    one_by_one = x + dropout(branch)
    torch.testing.assert_close(at_once, one_by_one)
    torch.testing.assert_close(slopes, torch.autograd.grad(one_by_one.square().sum(), (x, branch)))


def test_a_narrow_branch_gets_a_narrow_gradient():
    x, branch = (
        torch.zeros(4, 3, requires_grad=True),
        torch.ones(4, 3, dtype=torch.bfloat16, requires_grad=True),
    )
    Dropout(0.5).add(x, branch).sum().backward()
    assert x.grad.dtype == torch.float32
    assert branch.grad.dtype == torch.bfloat16


def test_where_nothing_is_trained_nothing_is_dropped():
    x = torch.randn(3, 4)
    assert Dropout(0.9).eval()(x) is x
    assert Dropout(0.0)(x) is x
