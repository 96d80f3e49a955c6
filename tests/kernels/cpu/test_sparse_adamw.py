"""The rows of a embedding that no batch has touched are left alone, and all is as if they were not: to the bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.training import OptimizerConfig
from headstart.kernels.layers import TokenEmbedding
from headstart.model.model import build
from headstart.training.optimizers.optimizer import (
    build_optimizers,
    load_state,
    set_learning_rate,
    state_tensors,
)

VOCAB = 300
CONFIG = preset("lab", vocab=VOCAB, width=10, depth=1, heads=2, ffn=12)  # 10: rows that fill no register


def made(whole=False, **settings):
    """A model with its optimizers, by rows or by the whole embedding."""
    model = build(CONFIG, HeadConfig(kind="classification"), seed=0)
    optimizers = build_optimizers(model, CONFIG, OptimizerConfig(**{"learning_rate": 1e-3, **settings}))
    if whole:
        embedding = model.base.embedding.tokens
        embedding.sparse_rows, optimizers[0]._sparse = None, []
    set_learning_rate(optimizers, 1.0)
    return model, optimizers


def learn(model, optimizers, batches):
    """A step; a batch may come in several parts."""
    for tokens in batches:
        torch.manual_seed(int(tokens.sum()))
        model(tokens).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def tokens_of(seed, rows=2, length=5):
    return torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def same(model, other):
    for (name, a), (_, b) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), name


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
@settings(max_examples=8, deadline=None)
def test_weights_and_memories_are_those_of_the_whole_table_to_the_bit(seeds):
    by_rows, by_table = made(), made(whole=True)
    for seed in seeds:
        learn(*by_rows, [tokens_of(seed)])
        learn(*by_table, [tokens_of(seed)])
    same(by_rows[0], by_table[0])
    found, expected = state_tensors(*by_rows), state_tensors(*by_table)
    assert found.keys() == expected.keys()
    for name in found:
        assert torch.equal(found[name], expected[name]), name


def test_a_batch_in_parts_is_the_batch():
    """Rows that several parts look up are added up; the sum is the embedding's, but for the order of additions."""
    by_rows, by_table = made(), made(whole=True)
    for seed in range(3):
        learn(*by_rows, [tokens_of(seed), tokens_of(seed + 1)])
        learn(*by_table, [tokens_of(seed), tokens_of(seed + 1)])
    for a, b in zip(by_rows[0].parameters(), by_table[0].parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_going_on_from_a_checkpoint_gives_the_same_bits():
    straight, resumed = made(), made()
    for seed in range(4):
        learn(*straight, [tokens_of(seed)])
    memory = {key: value.clone() for key, value in state_tensors(*straight).items()}
    assert memory["base.embedding.tokens.weight|exp_avg"].shape == (VOCAB, 10)
    with torch.no_grad():
        for a, b in zip(resumed[0].parameters(), straight[0].parameters(), strict=True):
            a.copy_(b)
    load_state(*resumed, memory, "here")
    for seed in range(4, 9):
        learn(*straight, [tokens_of(seed)])
        learn(*resumed, [tokens_of(seed)])
    same(straight[0], resumed[0])


def test_saving_changes_nothing():
    saved, other = made(), made()
    for seed in range(5):
        learn(*saved, [tokens_of(seed)])
        state_tensors(*saved)
        learn(*other, [tokens_of(seed)])
    same(saved[0], other[0])


def test_a_table_that_is_frozen_for_now_waits():
    model, (adam,) = made()
    embedding = model.base.embedding.tokens
    embedding.weight.requires_grad_(False)
    learn(model, [adam], [tokens_of(0)])
    assert "base.embedding.tokens.weight|step" not in state_tensors(model, [adam])
    embedding.weight.requires_grad_(True)
    before = embedding.weight.detach().clone()
    learn(model, [adam], [tokens_of(0)])
    moved = (before != embedding.weight).any(dim=1).nonzero()[:, 0]
    assert torch.equal(moved, tokens_of(0).unique())


@pytest.mark.parametrize("tied", [True, False])
def test_a_table_that_the_output_shares_goes_whole(tied):
    config = preset("lab", vocab=20, width=8, depth=1, heads=2, ffn=8, tied=tied)
    model = build(config, HeadConfig(kind="lm"))
    build_optimizers(model, config, OptimizerConfig(learning_rate=1e-3))
    embedding = model.base.embedding.tokens
    assert isinstance(embedding, TokenEmbedding)
    assert (embedding.sparse_rows is None) == tied


def test_what_is_measured_is_not_recorded():
    model, _ = made()
    embedding = model.base.embedding.tokens
    with torch.no_grad():
        model(tokens_of(0))
    model.eval()
    model(tokens_of(0))
    assert embedding.sparse_rows == []
