"""Masks by hand, the slow path against the fast one, and rows that may see nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.kernels.attention import attend
from headstart.model.attention import Mask, attend_with_weights, build_mask, subsequent_mask
from headstart.model.positions import token_positions


def grid(text):
    return torch.tensor([[c == "1" for c in row] for row in text.split()])


def seen_by(mask):
    return mask.allowed if mask.sees_nothing is None else mask.allowed & ~mask.sees_nothing


def test_square_mask_by_hand():
    assert torch.equal(subsequent_mask(4), grid("1000 1100 1110 1111"))


def test_causal_with_padding_by_hand():
    present = grid("0111 1110")
    mask = build_mask(4, 4, causal=True, keys_present=present)
    assert torch.equal(seen_by(mask)[0, 0], grid("0000 0100 0110 0111"))
    assert torch.equal(seen_by(mask)[1, 0], grid("1000 1100 1110 1110"))


def test_documents_side_by_side_by_hand():
    documents = torch.tensor([[0, 0, 1, 1, 1]])
    mask = build_mask(5, 5, causal=True, documents=documents)
    assert torch.equal(mask.allowed[0, 0], grid("10000 11000 00100 00110 00111"))
    mask = build_mask(5, 5, causal=False, keys_present=grid("11110"), documents=documents)
    assert torch.equal(seen_by(mask)[0, 0], grid("11000 11000 00110 00110 00110"))


def test_queries_after_a_cache_stand_at_the_end():
    mask = build_mask(2, 5, causal=True)
    assert torch.equal(mask.allowed[0, 0], grid("11110 11111"))
    assert build_mask(1, 5, causal=True) == Mask()
    assert build_mask(5, 5, causal=True) == Mask(causal_square=True)


def test_positions_skip_padding_and_restart_with_each_document():
    device = torch.device("cpu")
    present = grid("00111 11100")
    assert token_positions(2, 5, device, present).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 3]]
    documents = torch.tensor([[7, 7, 3, 3, 3]])
    assert token_positions(1, 5, device, documents=documents).tolist() == [[0, 1, 0, 1, 2]]
    assert token_positions(1, 5, device, grid("01111"), documents).tolist() == [[0, 0, 0, 1, 2]]


@st.composite
def attention_cases(draw):
    batch, heads, width = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    keys = draw(st.integers(1, 7))
    causal = draw(st.booleans())
    queries = draw(st.integers(1, keys))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    present = documents = None
    if draw(st.booleans()):
        present = torch.rand(batch, keys, generator=generator) < 0.6
    if draw(st.booleans()):
        documents = torch.randint(3, (batch, keys), generator=generator).cumsum(1)
    mask = build_mask(queries, keys, causal=causal, keys_present=present, documents=documents)

    def draw_tensor(length):
        return torch.randn(batch, heads, length, width, dtype=torch.float64, generator=generator)

    return draw_tensor(queries), draw_tensor(keys), draw_tensor(keys), mask


def by_hand(query, key, value, mask):
    """Attention with a Python loop over every query, and zeros where nothing may be seen."""
    out = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=query.dtype)
    batch, heads, queries, width = query.shape
    for b in range(batch):
        for h in range(heads):
            for q in range(queries):
                seen = torch.ones(key.shape[2], dtype=torch.bool)
                if mask.causal_square:
                    seen[q + 1 :] = False
                if mask.allowed is not None:
                    allowed = seen_by(mask)
                    seen = allowed[min(b, len(allowed) - 1), 0, min(q, allowed.shape[2] - 1)]
                if seen.any():
                    scores = key[b, h, seen] @ query[b, h, q] / width**0.5
                    out[b, h, q] = (scores.exp() / scores.exp().sum()) @ value[b, h, seen]
    return out


@settings(deadline=None, max_examples=60)
@given(attention_cases())
def test_fast_path_slow_path_and_a_loop_agree(case):
    expected = by_hand(*case)
    slow, weights = attend_with_weights(*case)
    torch.testing.assert_close(slow, expected)
    torch.testing.assert_close(attend(*case), expected)
    sums = weights.sum(-1)
    assert ((sums - 1).abs().lt(1e-9) | sums.eq(0)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("path", [attend, lambda *case: attend_with_weights(*case)[0]])
def test_a_row_that_sees_nothing_gives_zeros_and_finite_gradients(path, dtype):
    query, key, value = (torch.randn(2, 1, 4, 8).to(dtype).requires_grad_() for _ in range(3))
    mask = build_mask(4, 4, causal=True, keys_present=grid("0011 0000"))
    out = path(query, key, value, mask)
    assert (out[0, :, :2] == 0).all()
    assert (out[1] == 0).all()
    assert (out[0, :, 2:] != 0).all()
    out.sum().backward()
    for tensor in (query, key, value):
        assert tensor.grad.isfinite().all()
