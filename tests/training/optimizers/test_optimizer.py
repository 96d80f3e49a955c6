"""Optimizers: what decays, what is a matrix, rates by layer and by schedule; and state that survives a save."""

import math
from typing import get_args

import pytest
import torch
from expected_errors import refused
from hypothesis import given
from hypothesis import strategies as st

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.training import OptimizerConfig, ScheduleName
from headstart.errors import IntegrityError
from headstart.model.model import build
from headstart.training.optimizers.muon import Muon
from headstart.training.optimizers.optimizer import (
    build_optimizers,
    load_state,
    schedule,
    set_learning_rate,
    state_tensors,
)

SCHEDULES = get_args(ScheduleName)
CONFIG = preset("tiny", vocab=11, width=16, ffn=24)


def make(seed=0, **settings):
    model = build(CONFIG, HeadConfig(kind="classification"), seed=seed)
    return model, build_optimizers(model, CONFIG, OptimizerConfig(**{"learning_rate": 1e-3, **settings}))


def by_name(model, optimizers, key):
    values = {id(p): g[key] for o in optimizers for g in o.param_groups for p in g["params"]}
    return {name: values.get(id(p)) for name, p in model.named_parameters()}


def step(model, optimizers, seed):
    tokens = torch.randint(11, (4, 6), generator=torch.Generator().manual_seed(seed))
    model(tokens).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def test_decay_only_where_it_belongs():
    decay = by_name(*make(weight_decay=0.3), "weight_decay")
    assert {name for name, value in decay.items() if value == 0.3} == {
        *(
            f"base.stack.blocks.{i}.{part}.weight"
            for i in range(2)
            for part in ("attention.qkv", "attention.output", "feed_forward.input", "feed_forward.output")
        ),
        "head.classifier.weight",
    }


def test_muon_takes_the_blocks_matrices_alone():
    model, (adam, muon) = make(optimizer="muon")
    assert isinstance(muon, Muon)
    names = {id(p): name for name, p in model.named_parameters()}
    own = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    assert own == {n for n, p in model.named_parameters() if ".blocks." in n and p.dim() == 2}
    rest = {names[id(p)] for group in adam.param_groups for p in group["params"]}
    assert own | rest == set(dict(model.named_parameters()))


@pytest.mark.parametrize(
    ("fields", "qkv", "inner"),
    [
        ({}, (16, 16, 16), ()),
        ({"heads": 4, "kv_heads": 2}, (16, 8, 8), ()),
        ({"activation": "swiglu"}, (16, 16, 16), (24, 24)),
    ],
    ids=["plain", "shared keys", "gated"],
)
def test_muon_is_told_of_the_matrices_that_stand_in_one_tensor_where_it_shall_split_them(fields, qkv, inner):
    config = preset("tiny", vocab=11, width=16, ffn=24, **fields)
    model = build(config, HeadConfig(kind="classification"))
    split, together = (
        by_name(
            model,
            build_optimizers(model, config, OptimizerConfig(optimizer=name, learning_rate=1e-3))[1:],
            "rows",
        )
        for name in ("muon-split", "muon")
    )
    block = "base.stack.blocks.1"
    assert split[f"{block}.attention.qkv.weight"] == qkv
    assert split[f"{block}.feed_forward.input.weight"] == inner
    assert split[f"{block}.attention.output.weight"] == split[f"{block}.feed_forward.output.weight"] == ()
    for name, parameter in model.named_parameters():
        assert not split[name] or sum(split[name]) == len(parameter)
    assert not any(together.values())


def test_rates_fall_towards_the_embedding():
    model, optimizers = make(learning_rate=1.0, layer_decay=0.5)
    set_learning_rate(optimizers, 0.8)
    rates = by_name(model, optimizers, "lr")
    assert rates["head.classifier.weight"] == pytest.approx(0.8)
    assert rates["base.stack.final_norm.weight"] == pytest.approx(0.8)
    assert rates["base.stack.blocks.1.attention.qkv.weight"] == pytest.approx(0.4)
    assert rates["base.stack.blocks.0.attention.qkv.weight"] == pytest.approx(0.2)
    assert rates["base.embedding.tokens.weight"] == pytest.approx(0.1)


def test_what_is_frozen_is_in_no_group():
    model = build(CONFIG, HeadConfig(kind="classification"))
    model.base.requires_grad_(False)
    optimizers = build_optimizers(model, CONFIG, OptimizerConfig(learning_rate=1e-3))
    assert {name for name, rate in by_name(model, optimizers, "peak").items() if rate is not None} == {
        "head.classifier.weight",
        "head.classifier.bias",
    }


@pytest.mark.parametrize("name", ["adamw", "muon", "muon-split"])
def test_going_on_from_saved_memory_gives_the_same_bits(name):
    straight, optimizers = make(optimizer=name)
    set_learning_rate(optimizers, 1.0)
    for i in range(3):
        step(straight, optimizers, i)
    memory = {key: value.clone() for key, value in state_tensors(straight, optimizers).items()}
    weights = {key: value.detach().clone() for key, value in straight.named_parameters()}

    resumed, others = make(seed=9, optimizer=name)
    with torch.no_grad():
        for key, parameter in resumed.named_parameters():
            parameter.copy_(weights[key])
    load_state(resumed, others, memory, "here")
    set_learning_rate(others, 1.0)
    for i in range(3, 6):
        step(straight, optimizers, i)
        step(resumed, others, i)
    for (key, a), (_, b) in zip(straight.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(a, b), key


def test_memory_of_another_model_is_refused():
    model, optimizers = make()
    with refused("mismatch", "here", "base.other.weight|exp_avg", by=IntegrityError):
        load_state(model, optimizers, {"base.other.weight|exp_avg": torch.zeros(1)}, "here")


# ---- schedules -------------------------------------------------------------------------------------------------


def values(name, steps=100, warmup=10, cooldown=20):
    return [schedule(name, step, steps, warmup, cooldown) for step in range(steps)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_warms_up_in_a_straight_line_to_its_peak(name):
    rates = values(name)
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert max(rates) == pytest.approx(1.0)


def test_linear_by_hand():
    assert values("linear")[10] == 1.0
    assert values("linear")[55] == pytest.approx(0.5)
    assert values("linear")[99] == pytest.approx(1 / 90)


def test_cosine_by_hand():
    assert values("cosine")[55] == pytest.approx(0.5)
    assert values("cosine")[40] == pytest.approx((1 + math.cos(math.pi / 3)) / 2)


def test_constant_cools_down_over_the_last_steps():
    rates = values("constant")
    assert rates[10:81] == [1.0] * 71
    assert rates[90] == pytest.approx(0.5)


def test_inverse_sqrt_is_the_papers_formula():
    width, warmup = 512, 4000
    for step in (1, 100, 4000, 16_000, 100_000):
        paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        peak = width**-0.5 * warmup**-0.5
        assert peak * schedule("inverse-sqrt", step - 1, 10**6, warmup, 0) == pytest.approx(paper)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 200), st.data())
def test_rates_stay_between_zero_and_one_for_any_numbers(name, steps, data):
    warmup, cooldown = data.draw(st.integers(0, 300)), data.draw(st.integers(0, 300))
    for step in range(steps):
        assert 0 <= schedule(name, step, steps, warmup, cooldown) <= 1
