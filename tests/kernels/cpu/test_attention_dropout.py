"""Attention with dropout on a CPU, against the book: the same weights, with the same ones dropped."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.kernels.attention import attend
from headstart.kernels.cpu import attention_dropout
from headstart.kernels.cpu.attention_dropout import attend_with_dropout
from headstart.kernels.cpu.dropout import keep_mask
from headstart.kernels.unpadding import Varlen
from headstart.model.attention import Mask, attend_with_weights, build_mask


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    monkeypatch.setattr(attention_dropout, "STRETCH", 4)


def parts(batch, queries, keys, seed=0, width=6):
    draws = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, 2, length, width, dtype=torch.float64, generator=draws, requires_grad=True)
        for length in (queries, keys, keys)
    ]


def same_with_grads(found, expected, inputs):
    torch.testing.assert_close(found, expected)
    grads = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)
    torch.testing.assert_close(torch.autograd.grad(found, inputs, grads), torch.autograd.grad(expected, inputs, grads))


def dense(varlen, causal):
    text_of = torch.repeat_interleave(torch.arange(len(varlen.ends)), varlen.cu_seqlens.diff())[None]
    length = varlen.ends[-1]
    return build_mask(length, length, causal=causal, documents=text_of)


@given(st.lists(st.integers(1, 11), min_size=1, max_size=4), st.booleans())
@settings(max_examples=25, deadline=None)
def test_without_dropping_it_is_attention_within_each_text(lengths, causal):
    inputs = parts(1, sum(lengths), sum(lengths))
    varlen = Varlen.of(lengths)
    mask = Mask(causal_square=causal, varlen=varlen)
    for found in (attend_with_dropout(*inputs, mask, 0.0), attend(*inputs, mask)):
        same_with_grads(found, attend_with_weights(*inputs, dense(varlen, causal))[0], inputs)


@pytest.mark.parametrize("length", [1, 4, 10])
def test_a_batch_under_the_causal_square(length):
    inputs = parts(3, length, length)
    mask = Mask(causal_square=True)
    same_with_grads(attend_with_dropout(*inputs, mask, 0.0), attend_with_weights(*inputs, mask)[0], inputs)


def test_padding_in_what_is_looked_at():
    inputs = parts(2, 3, 5)
    present = torch.tensor([[True] * 5, [False] * 5])
    mask = build_mask(3, 5, causal=False, keys_present=present)
    same_with_grads(attend_with_dropout(*inputs, mask, 0.0), attend_with_weights(*inputs, mask)[0], inputs)


@pytest.mark.parametrize("function", [attend, lambda *given: attend_with_dropout(*given, 0.0)])
def test_one_query_a_text_sees_its_own_text(function):
    inputs = parts(1, 2, 7)
    mask = Mask(causal_square=True, varlen=Varlen.of([3, 4]))
    query, key, value = inputs
    expected = torch.cat(
        [
            attend_with_weights(query[:, :, i : i + 1], key[:, :, s], value[:, :, s], Mask())[0]
            for i, s in enumerate((slice(0, 3), slice(3, 7)))
        ],
        dim=2,
    )
    same_with_grads(function(*inputs, mask), expected, inputs)


def test_weights_are_dropped_by_the_mask_that_is_drawn_and_the_rest_scaled():
    inputs = parts(2, 5, 5)
    torch.manual_seed(7)
    found = attend_with_dropout(*inputs, Mask(), 0.5)
    torch.manual_seed(7)
    kept = keep_mask(2 * 2 * 5 * 5, 0.5).view(2, 2, 5, 5)
    weights = attend_with_weights(*inputs, Mask())[1] * kept * 2
    same_with_grads(found, weights @ inputs[2], inputs)


def test_the_gradients_are_those_of_differences():
    inputs = parts(1, 6, 6, width=3)
    mask = Mask(causal_square=True, varlen=Varlen.of([1, 5]))

    def again(*given):
        torch.manual_seed(2)
        return attend_with_dropout(*given, mask, 0.3)

    assert torch.autograd.gradcheck(again, inputs)


def test_products_in_bf16_give_nearly_the_same():
    inputs = parts(1, 9, 9)
    for varlen in (Varlen.of([4, 5]), None):
        mask = Mask(causal_square=True, varlen=varlen)
        narrow = [part.to(torch.bfloat16) for part in inputs]
        with torch.autocast("cpu", torch.bfloat16):
            found = attend_with_dropout(*narrow, mask, 0.0)
        assert found.dtype == torch.bfloat16
        expected = attend_with_dropout(*inputs, mask, 0.0)
        torch.testing.assert_close(found.double(), expected, atol=0.03, rtol=0.03)
