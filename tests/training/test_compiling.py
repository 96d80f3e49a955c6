"""Compiled blocks: the same numbers, one compilation for all of them, nothing left behind."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.machine import Machine
from headstart.model.model import build
from headstart.objectives.objective import Objective
from headstart.objectives.pretraining import Causal
from headstart.training.compiling import (
    LEAST_WORK,
    _fastest_attention,
    accelerated,
    compiled,
    should_compile,
    uncompiled,
)


def gradients(model, length=20):
    tokens = torch.randint(50, (4, length), generator=torch.Generator().manual_seed(0))
    model.zero_grad()
    hidden = model.base(tokens[:, :-1])
    loss = model.head.loss_at(hidden.flatten(0, 1), tokens[:, 1:].flatten()).sum
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "modern-small", "lab"])  # learned, rotary and sinusoidal positions; post-norm
def test_one_compilation_serves_all_blocks_with_the_same_numbers(name):
    shape = {"vocab": 50, "width": 32, "heads": 2, "depth": 3, "ffn": 48, "context": 32}
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
    model = build(preset(name, **shape, **quiet, direction="causal"), HeadConfig(kind="lm"))
    plain = gradients(model)
    torch._dynamo.utils.counters.clear()
    with compiled(model, True):
        found = gradients(model)
        with uncompiled(True):
            gradients(model, 9)
    # The embedding, blocks whose input is a sum still to be made or is not, and the end of the stack.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert all(module._compiled_call_impl is None for module in model.modules())
    assert "ended" not in vars(model.base.stack)


def test_only_long_work_on_one_gpu_is_compiled():
    gpu, small = Machine(torch.device("cuda"), "bf16", 1), preset("lab", vocab=50)
    blocks = SimpleNamespace(length=256)
    causal = Causal(blocks, 64)
    enough = math.ceil(LEAST_WORK / (64 * 256 * small.depth * small.width))
    assert should_compile(causal, small, enough, gpu)
    assert not should_compile(causal, small, enough - 1, gpu)
    assert not should_compile(causal, small, enough, replace(gpu, device=torch.device("cpu")))
    assert not should_compile(causal, small, enough, replace(gpu, ranks=SimpleNamespace(world=2)))
    assert not should_compile(Objective(), small, 10**6, gpu)


def test_where_exactness_is_given_up_residuals_are_summed_in_bf16_while_training():
    model, seen = build(preset("lab", vocab=50, width=16, heads=2, ffn=8, depth=1), HeadConfig(kind="lm")), []
    model.base.stack.blocks[0].register_forward_pre_hook(lambda block, given: seen.append(given[0].dtype))
    fast = Machine(torch.device("cpu"), "bf16", 1, is_fast=True)
    tokens = torch.ones(1, 3, dtype=torch.long)
    with fast.autocast(), accelerated(model, Causal(SimpleNamespace(length=3), 1), fast, False):
        model.train()(tokens)
        model.eval()(tokens)
    model.train()(tokens)
    assert seen == [torch.bfloat16, torch.float32, torch.float32]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_the_fastest_attention_kernel_computes_the_same(is_wanted):
    query = torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    plain = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    with _fastest_attention(is_wanted):
        found = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    torch.testing.assert_close(found, plain)
