"""A batch without its padding gives what it gives with it; places that nobody asks for are not computed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.kernels.unpadding import Varlen, repad, unpad
from headstart.model.blocks import new_record
from headstart.model.model import build

SMALL = {"vocab": 13, "width": 16, "depth": 2, "heads": 2, "ffn": 24, "context": 16}
CONFIGS = {
    "post-norm causal": preset("lab", **SMALL),
    "pre-norm rotary causal": preset("tiny", **SMALL),
    "bert": preset("bert-base", **SMALL),
    "shared heads": preset("modern-small", **{**SMALL, "heads": 4}, kv_heads=2),
}


def made(name, head=None):
    return build(CONFIGS[name], head or HeadConfig(kind="lm"), seed=1).double().eval()


def batch_of(lengths, seed=0):
    draws = torch.Generator().manual_seed(seed)
    tokens = torch.randint(13, (len(lengths), max(lengths)), generator=draws)
    present = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return tokens, present


def padded(model, tokens, **reading):
    """By the path that shows its weights, which keeps the padding."""
    return model.base(tokens, **reading, record=new_record())


@pytest.mark.parametrize("name", CONFIGS)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 3))
@settings(max_examples=10, deadline=None)
def test_without_padding_the_vectors_are_the_same(name, lengths, seed):
    model = made(name)
    tokens, present = batch_of(lengths, seed)
    found = model.base(tokens, present=present)
    torch.testing.assert_close(found[present], padded(model, tokens, present=present)[present])
    assert (found[~present] == 0).all()


@pytest.mark.parametrize("name", CONFIGS)
def test_documents_and_padding_together(name):
    model = made(name)
    tokens, present = batch_of([7, 4])
    documents = torch.tensor([[3, 3, 4, 4, 4, 9, 9], [9, 9, 9, 2, 2, 2, 2]])
    found = model.base(tokens, present=present, documents=documents)
    expected = padded(model, tokens, present=present, documents=documents)
    torch.testing.assert_close(found[present], expected[present])


@pytest.mark.parametrize("name", CONFIGS)
def test_texts_given_in_one_row_with_their_cuts(name):
    model = made(name)
    tokens, present = batch_of([5, 1, 3])
    read = model.base(tokens[present][None], varlen=Varlen.of([5, 1, 3]))
    torch.testing.assert_close(read[0], padded(model, tokens, present=present)[present])


def test_learning_goes_the_same_way_without_padding():
    model = made("post-norm causal").eval()
    tokens, present = batch_of([6, 2, 4])
    grads = []
    for read in (model.base, lambda *a, **k: padded(model, *a, **k)):
        model.zero_grad()
        read(tokens, present=present)[present].square().sum().backward()
        grads.append([p.grad.clone() for p in model.base.parameters()])
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("name", ["post-norm causal", "bert"])
def test_in_bf16_the_row_is_filled_up_and_nothing_of_that_is_seen(name):
    model = build(CONFIGS[name], HeadConfig(kind="classification"), seed=1).eval()
    tokens, present = batch_of([6, 1, 4])
    with torch.autocast("cpu", torch.bfloat16):
        row = unpad(tokens, present)
        assert row.tokens.shape == (1, 64)
        assert (row.texts, row.varlen.max_seqlen) == (3, 6)
        assert row.varlen.ends == (6, 7, 11, *range(17, 64, 6), 64)
        found, hidden = model(tokens, present=present), model.base(tokens, present=present)
    assert hidden.shape == (3, 6, 16)
    torch.testing.assert_close(found, model(tokens, present=present), atol=0.03, rtol=0.03)


def test_unpadding_and_back_by_hand():
    tokens = torch.tensor([[5, 6, 0], [7, 0, 0], [8, 9, 10]])
    row = unpad(tokens, tokens > 0)
    assert row.tokens.tolist() == [[5, 6, 7, 8, 9, 10]]
    assert row.varlen.ends == (2, 3, 6)
    assert row.varlen.cu_seqlens.tolist() == [0, 2, 3, 6]
    assert row.varlen.max_seqlen == 3
    assert row.varlen.positions().tolist() == [[0, 1, 0, 0, 1, 2]]
    assert repad(row.tokens[..., None], row, tokens.shape)[..., 0].tolist() == tokens.tolist()
