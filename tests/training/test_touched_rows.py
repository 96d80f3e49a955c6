"""The rows of a token table that no batch has touched are left alone, and all is as if they were not: to the bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.model.model import build
from headstart.model.presets import HeadConfig, preset
from headstart.model.token_table import TokenTable
from headstart.training.optimizer import (
    OptimizerConfig,
    build_optimizers,
    load_state,
    set_rate,
    state_tensors,
)
from headstart.training.touched_rows import AdamW

VOCAB = 300
CONFIG = preset("lab", vocab=VOCAB, width=10, depth=1, heads=2, ffn=12)  # 10: rows that fill no register


def made(whole=False, **settings):
    """A model with its optimizers, by rows or by the whole table."""
    model = build(CONFIG, HeadConfig(kind="classification"), seed=0)
    optimizers = build_optimizers(model, CONFIG, OptimizerConfig(**settings))
    if whole:
        table = model.base.embedding.tokens
        table.looked_up, optimizers[0]._tables = None, []
    set_rate(optimizers, 1.0)
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
@settings(max_examples=15, deadline=None)
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
    """Rows that several parts look up are added up; the sum is the table's, but for the order of additions."""
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


def test_the_gradient_of_the_rows_is_seen_by_who_clips_it():
    model, (adam,) = made()
    assert isinstance(adam, AdamW)
    tokens = tokens_of(0)
    model.eval()
    model(tokens).square().sum().backward()
    whole = model.base.embedding.tokens.weight.grad.norm()
    model.zero_grad()
    model.train()
    for module in model.modules():
        if hasattr(module, "rate"):
            module.rate = 0.0
        if hasattr(module, "head_width") and hasattr(module, "dropout"):
            module.dropout = 0.0
    model(tokens).square().sum().backward()
    assert model.base.embedding.tokens.weight.grad is None
    (slopes,) = adam.row_gradients()
    assert len(slopes) == len(tokens.unique())
    torch.testing.assert_close(slopes.norm(), whole)


def test_a_gradient_that_is_forgotten_moves_nothing():
    model, (adam,) = made()
    before = model.base.embedding.tokens.weight.clone()
    model(tokens_of(0)).square().sum().backward()
    adam.zero_grad(set_to_none=True)
    adam.step()
    assert torch.equal(before, model.base.embedding.tokens.weight)


def test_a_table_that_is_frozen_for_now_waits():
    model, (adam,) = made()
    table = model.base.embedding.tokens
    table.weight.requires_grad_(False)
    learn(model, [adam], [tokens_of(0)])
    assert "base.embedding.tokens.weight|step" not in state_tensors(model, [adam])
    table.weight.requires_grad_(True)
    before = table.weight.detach().clone()
    learn(model, [adam], [tokens_of(0)])
    moved = (before != table.weight).any(dim=1).nonzero()[:, 0]
    assert torch.equal(moved, tokens_of(0).unique())


@pytest.mark.parametrize("tied", [True, False])
def test_a_table_that_the_output_shares_goes_whole(tied):
    config = preset("lab", vocab=20, width=8, depth=1, heads=2, ffn=8, tied=tied)
    model = build(config, HeadConfig(kind="lm"))
    build_optimizers(model, config, OptimizerConfig())
    table = model.base.embedding.tokens
    assert isinstance(table, TokenTable)
    assert (table.looked_up is None) == tied


def test_what_is_measured_is_not_recorded():
    model, _ = made()
    table = model.base.embedding.tokens
    with torch.no_grad():
        model(tokens_of(0))
    model.eval()
    model(tokens_of(0))
    assert table.looked_up == []
