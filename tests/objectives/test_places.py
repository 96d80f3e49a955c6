"""The places with a target: the same as a boolean mask, forward and backward."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.model.heads import IGNORED
from headstart.objectives.places import picked, placed


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 99), st.sampled_from([1, 4, 16]))
def test_picked_are_the_vectors_that_a_boolean_mask_would_pick(examples, length, seed, multiple):
    draws = np.random.default_rng(seed)
    targets = np.where(
        draws.random((examples, length)) < 0.4, draws.integers(50, size=(examples, length)), IGNORED
    )
    batch = {key: torch.from_numpy(value) for key, value in placed({"targets": targets}, multiple).items()}
    hidden = torch.randn(examples, length, 3, dtype=torch.float64, requires_grad=True)
    counted = batch["wanted"] != IGNORED
    found, expected = picked(hidden, batch)[counted], hidden[torch.from_numpy(targets != IGNORED)]
    assert torch.equal(found, expected)
    assert batch["wanted"][counted].tolist() == targets[targets != IGNORED].tolist()
    slopes = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((one * slopes).sum(), hidden)[0] for one in (found, expected))
    assert torch.equal(ours, theirs)


def test_the_list_is_filled_up_to_a_multiple_and_is_never_empty():
    nothing = placed({"targets": np.full((2, 3), IGNORED)}, 8)
    assert len(nothing["places"]) == 8
    assert set(nothing["wanted"]) == {IGNORED}
    assert len(placed({"targets": np.arange(9).reshape(3, 3)}, 8)["places"]) == 16


def test_labels_of_whole_texts_are_no_places():
    batch = {"targets": np.array([0, 1])}
    assert placed(batch) == batch
