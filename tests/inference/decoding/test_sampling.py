"""Each step from logits to a token, by hand and by frequency."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headstart.config.generation import GenerationConfig
from headstart.errors import UserError
from headstart.inference.decoding.sampling import (
    keep_top_k,
    keep_top_p,
    pick,
    sample,
)

NEVER = float("-inf")


def logits_of(*probabilities):
    return torch.tensor([probabilities], dtype=torch.float64).log()


def test_top_k_by_hand():
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0]])
    assert keep_top_k(logits, 2).tolist() == [[NEVER, 3.0, 2.0, NEVER]]
    assert keep_top_k(logits, 9).tolist() == logits.tolist()
    assert keep_top_k(torch.tensor([[1.0, 1.0, 0.0]]), 1).tolist() == [[1.0, 1.0, NEVER]]


def test_top_p_by_hand():
    logits = logits_of(0.1, 0.5, 0.15, 0.25)
    for p, kept in ((0.4, [1]), (0.5, [1]), (0.6, [1, 3]), (0.8, [1, 2, 3]), (1.0, [0, 1, 2, 3])):
        assert keep_top_p(logits, p)[0].isfinite().nonzero().flatten().tolist() == kept


def test_temperature_sharpens_and_flattens():
    chances = (torch.arange(10_000) + 0.5) / 10_000
    for temperature, share in ((0.5, 0.64 / 0.68), (1.0, 0.8), (1e6, 0.5)):
        tokens = sample(logits_of(0.2, 0.8).expand(10_000, -1), chances, GenerationConfig(temperature=temperature))
        assert tokens.double().mean().item() == pytest.approx(share, abs=1e-3)


def test_pick_is_the_inverse_of_the_distribution():
    logits = logits_of(0.25, 0.0, 0.5, 0.25).expand(5, -1)
    chances = torch.tensor([0.0, 0.24, 0.26, 0.74, 0.999999])
    assert pick(logits, chances).tolist() == [0, 0, 2, 2, 3]


def test_pick_has_the_right_frequencies():
    probabilities = torch.tensor([0.1, 0.2, 0.7])
    chances = torch.rand(20_000, generator=torch.Generator().manual_seed(0))
    counts = pick(probabilities.log().expand(20_000, -1), chances).bincount(minlength=3)
    assert (counts / 20_000).tolist() == pytest.approx([0.1, 0.2, 0.7], abs=0.01)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=8), st.floats(0, 1), st.data())
def test_what_cannot_come_never_comes(values, chance, data):
    forbidden = data.draw(st.lists(st.sampled_from(range(len(values))), max_size=len(values) - 1, unique=True))
    logits = torch.tensor([values])
    logits[:, forbidden] = NEVER
    assert pick(logits, torch.tensor([chance])).item() not in forbidden


BAD = [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}]


@pytest.mark.parametrize("bad", BAD)
def test_numbers_that_mean_nothing_are_refused(bad):
    with pytest.raises(UserError):
        GenerationConfig(**bad)
