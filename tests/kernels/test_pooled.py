"""The pooled vector without the rest of the last block is that of the whole text."""

import pytest
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.kernels.pooled import read_pooled
from headstart.model.blocks import new_record
from headstart.model.heads import pool
from headstart.model.model import build

TOKENS = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])
PRESENT = TOKENS != 0
LAST = torch.tensor([3, 1, 0])


def base_of(name, **changes):
    shape = {"width": 16, "depth": 2, "heads": 2, "ffn": 24, "context": 8}
    # Built, and so initialised: a base alone has learned positions that were never written.
    return build(preset(name, vocab=12, **{**shape, **changes}), HeadConfig(kind="none")).base.double().eval()


@pytest.mark.parametrize(
    ("name", "direction", "pooling"),
    [("lab", "causal", "last"), ("gpt2", "causal", "last"), ("bert-base", "bidirectional", "first")],
)
def test_it_is_the_vector_of_that_token(name, direction, pooling):
    base = base_of(name, direction=direction)
    with torch.no_grad():
        found = read_pooled(base, TOKENS, pooling, {"present": PRESENT})
        hidden = base(TOKENS, present=PRESENT)
    index = LAST if pooling == "last" else torch.zeros(3, dtype=torch.int64)
    assert torch.allclose(found, hidden[torch.arange(3), index], atol=1e-10)


@pytest.mark.parametrize(
    ("name", "pooling", "reading"),
    [
        ("lab", "first", {"present": PRESENT}),  # the first token does not see the others
        ("lab", "mean", {"present": PRESENT}),
        ("tiny", "last", {"present": PRESENT}),  # rotary positions
        ("lab", "last", {"present": torch.zeros_like(PRESENT)}),  # empty texts
        ("lab", "last", {"documents": TOKENS}),
    ],
)
def test_where_it_would_not_be_the_whole_text_is_read(name, pooling, reading):
    assert read_pooled(base_of(name), TOKENS, pooling, reading) is None


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


@pytest.mark.parametrize("pooling", ["last", "first", "mean"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_sentence_head_gets_the_same_vector(name, pooling):
    model = made(name, HeadConfig(kind="classification", classes=3, pooling=pooling))
    tokens, present = batch_of([6, 1, 4, 6])
    hidden = padded(model, tokens, present=present)
    expected = model.head.of_pooled(pool(hidden, present, pooling))
    torch.testing.assert_close(model(tokens, present=present), expected)
    together = model(tokens[:, :1]), model.head.of_pooled(padded(model, tokens[:, :1])[:, 0])
    torch.testing.assert_close(*together)


def test_a_sentence_head_teaches_the_same():
    model = made("post-norm causal", HeadConfig(kind="classification"))
    tokens, present = batch_of([6, 1, 4])
    grads = []
    for shown in (False, True):
        model.zero_grad()
        if shown:
            hidden = padded(model, tokens, present=present)
            model.head.of_pooled(pool(hidden, present, "last")).square().sum().backward()
        else:
            model(tokens, present=present).square().sum().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*grads)


def test_a_text_of_nothing_gives_zeros_to_the_head():
    model = made("post-norm causal", HeadConfig(kind="classification"))
    tokens, present = batch_of([3, 2])
    present[1] = False
    torch.testing.assert_close(model(tokens, present=present)[1], model.head.of_pooled(torch.zeros(16).double()))


def test_where_a_pooled_token_does_not_see_all_others_the_whole_text_is_read():
    tokens, present = batch_of([3, 2])
    causal, bert, rotary = (made(name).base for name in ("post-norm causal", "bert", "pre-norm rotary causal"))
    assert read_pooled(causal, tokens, "last", {"present": present}).shape == (2, 16)
    assert read_pooled(bert, tokens, "first", {}).shape == (2, 16)
    for base, pooling in ((causal, "first"), (causal, "mean"), (bert, "mean"), (rotary, "last")):
        assert read_pooled(base, tokens, pooling, {"present": present}) is None
    assert read_pooled(causal, tokens, "last", {"record": new_record()}) is None
