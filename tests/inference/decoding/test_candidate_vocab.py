"""The likeliest token by candidates is that of the full product, whatever the numbers are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.inference.decoding.candidate_vocab import CandidateVocab
from headstart.inference.decoding.sampling import likeliest

NOBODY = torch.tensor([], dtype=torch.long)


def layer_of(vocab, width, bias, seed, spread):
    """Rows of very different lengths, as the tokens of a trained model have."""
    generator = torch.Generator().manual_seed(seed)
    layer = torch.nn.Linear(width, vocab, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        layer.weight.mul_(torch.exp(spread * torch.randn(vocab, 1, generator=generator)))
    return layer.double(), generator


@settings(deadline=None, max_examples=60)
@given(
    vocab=st.integers(1, 300),
    width=st.integers(2, 40),
    rows=st.integers(1, 5),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.0, 0.5, 3.0]),
    size=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_it_is_the_token_of_the_full_product(vocab, width, rows, bias, seed, spread, size):
    layer, generator = layer_of(vocab, width, bias, seed, spread)
    x = (torch.randn(rows, width, generator=generator) * size).double()
    with torch.inference_mode():
        assert CandidateVocab(layer).best(x, NOBODY).tolist() == layer(x).argmax(dim=1).tolist()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.floats(1e-9, 1e-2))
def test_rows_that_nearly_tie_are_told_apart(seed, gap):
    layer, generator = layer_of(200, 16, False, seed, 0.0)
    x = torch.randn(1, 16, generator=generator).double()
    with torch.inference_mode():
        best = int(layer(x).argmax())
        nearly = (best + 77) % 200
        layer.weight[nearly] = layer.weight[best] * (1 + gap * layer(x)[0, best].sign())
        assert CandidateVocab(layer).best(x, NOBODY).tolist() == [nearly]
        layer.weight[nearly] = layer.weight[best]
        assert CandidateVocab(layer).best(x, NOBODY).tolist() == [min(best, nearly)], "the first of equals"


def test_what_never_comes_does_not_come_and_numbers_that_are_none_come_to_something():
    layer, generator = layer_of(130, 8, True, 1, 0.5)
    x = torch.randn(3, 8, generator=generator).double()
    with torch.inference_mode():
        logits = layer(x)
        never = logits.topk(4, dim=1).indices.flatten().unique()
        expected = logits.index_fill(1, never, float("-inf")).argmax(dim=1)
        assert CandidateVocab(layer).best(x, never).tolist() == expected.tolist()
        x[1] = float("nan")
        assert CandidateVocab(layer).best(x, never).shape == (3,)
        zero = CandidateVocab(layer).best(torch.zeros(1, 8).double(), NOBODY)
        assert zero.item() == layer.bias.argmax().item()
        layer.weight.zero_()
        assert CandidateVocab(layer).best(x[:1], NOBODY).item() == layer.bias.argmax().item()


@pytest.mark.parametrize("vocab", [1, 127, 128, 129, 640, 1000])
@pytest.mark.parametrize("rows", [1, 6])
def test_the_likeliest_is_the_first_of_the_highest(vocab, rows):
    logits = torch.randint(0, 9, (rows, vocab), generator=torch.Generator().manual_seed(vocab)).float()
    assert likeliest(logits).tolist() == [row.index(max(row)) for row in logits.tolist()]
