"""Compiled blocks: the same numbers, one compilation for all shapes, nothing left behind."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from headstart.model.model import build
from headstart.model.presets import HeadConfig, preset
from headstart.objectives.causal import Causal
from headstart.training.compiling import LEAST_WORK, as_written, compiled, pays, quickened
from headstart.training.machine import Machine

SHAPES = [(4, 20, 12), (6, 28, 24), (3, 36, 40)]  # no length that is also a width: it would be taken for one


def translator():
    fields = {"width": 32, "heads": 2, "depth": 1, "decoder_depth": 1, "ffn": 48}
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
    return build(preset("transformer-tiny", vocab=50, **fields, **quiet), HeadConfig(kind="translation"))


def gradients(model, batch, source, target):
    draws = torch.Generator().manual_seed(0)
    tokens, written = (torch.randint(50, (batch, length), generator=draws) for length in (source, target))
    present = torch.arange(source) < torch.randint(1, source + 1, (batch, 1), generator=draws)
    model.zero_grad()
    hidden = model.base(tokens, written, source_present=present)
    loss = model.head.loss_at(hidden.flatten(0, 1), written.flatten()).sum
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.slow
def test_one_compilation_serves_all_shapes_with_the_same_numbers():
    model = translator()
    expected = [gradients(model, *shape) for shape in SHAPES]
    torch._dynamo.utils.counters.clear()
    with compiled(model, True, has_one_shape=False):
        found = [gradients(model, *shape) for shape in SHAPES]
        with as_written(True):
            gradients(model, 2, 9, 9)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 4, (
        "embedding and block, each of what is read and of what is written"
    )
    for ours, plain in zip(found, expected, strict=True):
        for one, other in zip(ours, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert all(module._compiled_call_impl is None for module in model.modules())


@pytest.mark.slow
def test_nothing_of_what_is_compiled_is_on_a_cpu(monkeypatch):
    """On torch's device without numbers, which is not a CPU either."""
    found = []

    def look(graph, _):
        values = [node.meta.get("val") for node in graph.graph.nodes]
        found.extend(value.device.type for value in values if isinstance(value, torch.Tensor))
        return make_boxed_func(graph.forward)

    looking = aot_autograd(fw_compiler=look, bw_compiler=look)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=looking))
    model = translator().to("meta").train()
    tokens = torch.zeros(3, 5, dtype=torch.long, device="meta")
    present = torch.ones(3, 5, dtype=torch.bool, device="meta")
    with compiled(model, True, has_one_shape=False):
        model.base(tokens, tokens[:, :4], source_present=present).sum().backward()
    assert set(found) == {"meta"}


def test_only_long_work_on_one_gpu_is_compiled():
    gpu, small = Machine(torch.device("cuda"), "bf16", 1), preset("lab", vocab=50)
    blocks = SimpleNamespace(length=256)
    causal = Causal(blocks, 64)  # type: ignore[arg-type]
    enough = math.ceil(LEAST_WORK / (64 * 256 * small.depth * small.width))
    assert pays(causal, small, enough, gpu)
    assert not pays(causal, small, enough - 1, gpu)
    assert not pays(causal, small, enough, replace(gpu, device=torch.device("cpu")))
    assert not pays(causal, small, enough, replace(gpu, ranks=SimpleNamespace(world=2)))
    assert not pays(object(), small, 10**6, gpu)  # type: ignore[arg-type]
    assert pays(object(), small, 10**6, replace(gpu, is_fast=True))  # type: ignore[arg-type]


def test_where_exactness_is_given_up_residuals_are_summed_in_bf16_while_training():
    model, seen = build(preset("lab", vocab=50, width=16, heads=2, ffn=8, depth=1), HeadConfig(kind="lm")), []
    model.base.stack.blocks[0].register_forward_pre_hook(lambda block, given: seen.append(given[0].dtype))
    fast = Machine(torch.device("cpu"), "bf16", 1, is_fast=True)
    tokens = torch.ones(1, 3, dtype=torch.long)
    with fast.autocast(), quickened(model, Causal(SimpleNamespace(length=3), 1), fast, False):  # type: ignore[arg-type]
        model.train()(tokens)
        model.eval()(tokens)
    model.train()(tokens)
    assert seen == [torch.bfloat16, torch.float32, torch.float32]
