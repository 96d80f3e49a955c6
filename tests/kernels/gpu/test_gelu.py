"""GELU of few instructions against erf and tanh in float64, over every number that bf16 has."""

import pytest
import torch
import torch.nn.functional as F

from headstart.kernels import layers
from headstart.kernels.gpu.gelu import FastGelu, FastGeluTanh
from headstart.model.blocks import ACTIVATIONS

KINDS = {"gelu": (FastGelu, "none"), "gelu-tanh": (FastGeluTanh, "tanh")}
GRAD_ERROR = {"gelu": 2e-7, "gelu-tanh": 3e-6}  # torch's own in float32: 2e-7 and 1e-6
EVERY_BF16 = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def with_grad(function, x):
    x = x.detach().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y.sum(), x)[0]


def truth(kind, x):
    return with_grad(lambda exact: F.gelu(exact, approximate=KINDS[kind][1]), x.double())


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_right_to_float32s_rounding(kind):
    x = torch.linspace(-10, 10, 40_001)
    (y, grad), (true_y, true_grad) = with_grad(KINDS[kind][0].apply, x), truth(kind, x)
    assert y.dtype == grad.dtype == torch.float32
    assert ((y - true_y).abs() <= 1e-7 + 1e-7 * x.abs()).all()
    assert (grad - true_grad).abs().max() < GRAD_ERROR[kind]


def test_small_values_of_negative_numbers_are_right_to_a_thousandth():
    x = torch.linspace(-6, -1e-3, 6_001)
    true = x.double() * torch.special.erfc(-x.double() / 2**0.5) / 2
    assert (FastGelu.apply(x) / true - 1).abs().max() < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_every_bf16_number_is_right_to_a_step(kind):
    x = EVERY_BF16[EVERY_BF16.isfinite() & (EVERY_BF16.abs() < 1e18)]  # beyond, the cubes of "tanh" are infinite
    for found, true in zip(with_grad(KINDS[kind][0].apply, x), truth(kind, x), strict=True):
        assert found.dtype == torch.bfloat16
        assert ((found - true).abs() <= 2**-8 * true.abs() + 1e-8).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_torch_can_answer_is_answered(kind):
    ours = with_grad(KINDS[kind][0].apply, EVERY_BF16)
    theirs = with_grad(lambda x: F.gelu(x, approximate=KINDS[kind][1]), EVERY_BF16)
    for found, other in zip(ours, theirs, strict=True):
        assert not (found.isnan() & ~other.isnan()).any()
        assert found[EVERY_BF16.isnan()].isnan().all()


@pytest.mark.parametrize("kind", KINDS)
def test_far_from_zero_it_is_a_line(kind):
    x = torch.tensor([-1e9, -1e4, -20.0, 20.0, 1e4, 1e9])
    y, grad = with_grad(KINDS[kind][0].apply, x)
    assert torch.equal(y, x.clamp(min=0))
    assert grad.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_came_is_kept(kind):
    x = torch.randn(8, dtype=torch.bfloat16, requires_grad=True)
    y = KINDS[kind][0].apply(x)  # held: without it torch may free what was saved
    (kept,) = y.grad_fn.saved_tensors
    assert kept.data_ptr() == x.data_ptr()
    assert kept.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_as_for_a_gpu_it_is_one_graph_and_the_same(kind, monkeypatch):
    monkeypatch.setattr(layers, "_is_compiled_on_gpu", lambda x: torch.compiler.is_compiling())
    x = torch.linspace(-9, 9, 500, dtype=torch.bfloat16)
    compiled = torch.compile(ACTIVATIONS[kind], backend="aot_eager", fullgraph=True)
    for one, other in zip(with_grad(compiled, x), with_grad(KINDS[kind][0].apply, x), strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_on_a_gpu_it_is_right_to_a_step(kind):
    x = EVERY_BF16[EVERY_BF16.isfinite() & (EVERY_BF16.abs() < 1e18)].cuda()
    found = with_grad(torch.compile(ACTIVATIONS[kind], fullgraph=True), x)
    for one, true in zip(found, truth(kind, x), strict=True):
        assert ((one - true).abs() <= 2**-8 * true.abs() + 1e-8).all()
