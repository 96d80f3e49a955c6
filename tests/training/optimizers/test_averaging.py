"""Averages of weights, against sums by hand."""

import pytest
import torch
from torch import nn

from headstart.training.optimizers.averaging import Average


def averaged(kind, values, decay=0.9, steps=None):
    """The average of a weight that had these values after its steps."""
    model = nn.Linear(1, 1, bias=False)
    average = Average(model, kind, decay)
    for step, value in enumerate(values):
        nn.init.constant_(model.weight, value)
        average.update(step, steps or len(values))
    return model, average


def test_a_moving_average_starts_as_a_mean():
    _, average = averaged("ema", [1.0, 2.0, 3.0], decay=0.9)
    assert average.tensors["weight"].item() == pytest.approx(2.0)


def test_and_then_forgets_by_its_decay():
    _, average = averaged("ema", [1.0, 3.0, 8.0], decay=0.5)
    assert average.tensors["weight"].item() == pytest.approx(0.5 * 2.0 + 0.5 * 8.0)


def test_the_tail_is_the_mean_of_the_last_fifth():
    _, average = averaged("tail", [float(number) for number in range(20)])
    assert average.tensors["weight"].item() == pytest.approx((16 + 17 + 18 + 19) / 4)


def test_of_a_long_tail_some_fifty_points_count_and_the_end_is_one():
    _, average = averaged("tail", [float(number) for number in range(1_000)])
    points = range(999, 799, -4)  # a fifth of 1000 steps, every fourth
    assert average.count == len(points) == 50
    assert average.tensors["weight"].item() == pytest.approx(sum(points) / 50, rel=1e-5)


def test_none_is_none():
    model, average = averaged("none", [1.0, 2.0])
    with average.applied():
        assert model.weight.item() == 2.0
    assert average.state_tensors() == {}


def test_it_is_the_models_weights_within_and_not_after():
    model, average = averaged("ema", [1.0, 2.0])
    with average.applied():
        assert model.weight.item() == 1.5
    assert model.weight.item() == 2.0


def test_it_goes_on_from_what_was_saved():
    model, average = averaged("ema", [1.0, 2.0], decay=0.99)
    saved = {name: tensor.clone() for name, tensor in average.state_tensors().items()}
    again = Average(model, "ema", 0.99)
    again.load(saved, average.count)
    nn.init.constant_(model.weight, 6.0)
    again.update(2, 3)
    assert again.tensors["weight"].item() == pytest.approx(3.0)
    assert torch.equal(saved["average|weight"], torch.tensor([[1.5]]))
