"""The layers give what torch's own give."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headstart.kernels.cpu.dropout import kept_share
from headstart.kernels.layers import Dropout, Linear, TokenEmbedding, gelu, gelu_tanh


def test_linear_is_torchs_and_a_copy_counts_in_training_alone():
    layer, x = Linear(3, 2), torch.randn(4, 3)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    layer.weight_copy, layer.bias_copy = torch.ones(2, 3), torch.zeros(2)
    assert torch.equal(layer(x), F.linear(x, torch.ones(2, 3)))
    assert torch.equal(layer.eval()(x), F.linear(x, layer.weight, layer.bias))
    assert set(layer.state_dict()) == {"weight", "bias"}, "copies are never saved"


def test_the_gradient_of_the_rows_in_use_is_that_of_the_whole_embedding():
    torch.manual_seed(0)
    tokens, factors = torch.tensor([[5, 2, 5], [9, 2, 2]]), torch.randn(2, 3, 4)
    plain, sparse = nn.Embedding(12, 4), TokenEmbedding(12, 4)
    sparse.load_state_dict(plain.state_dict())
    sparse.sparse_rows = []
    (plain(tokens) * factors).sum().backward()
    (sparse(tokens) * factors).sum().backward()
    ((rows, part),) = sparse.sparse_rows
    assert rows.tolist() == [2, 5, 9]
    assert torch.allclose(part.grad, plain.weight.grad[rows])
    assert sparse.weight.grad is None


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_dropout_keeps_a_share_and_scales_it_up_and_nothing_in_use(rate):
    torch.manual_seed(1)
    dropout, x = Dropout(rate), torch.ones(200, 500)
    found = dropout(x)
    kept = found != 0
    assert kept.float().mean().item() == pytest.approx(1 - rate, abs=0.005)
    assert torch.allclose(found[kept], torch.tensor(1 / (1 - rate)))
    assert torch.equal(dropout.eval()(x), x)


def test_the_sum_with_a_branch_drops_the_branch_alone():
    torch.manual_seed(2)
    dropout, x = Dropout(0.5), torch.full((100, 100), 3.0)
    found = dropout.add(x, torch.ones(100, 100))
    assert set(found.unique().tolist()) == {3.0, 5.0}
    assert torch.equal(dropout.eval().add(x, x), 2 * x)


def test_gelu_is_torchs_in_both_forms():
    x = torch.linspace(-4, 4, 101)
    assert torch.equal(gelu(x), F.gelu(x))
    assert torch.equal(gelu_tanh(x), F.gelu(x, approximate="tanh"))


def test_what_is_kept_is_scaled_and_the_gradient_goes_the_same_way():
    x = torch.randn(50, 40, dtype=torch.float64, requires_grad=True)
    dropout = Dropout(0.2)
    torch.manual_seed(0)
    y = dropout(x)
    y.sum().backward()
    kept = y != 0
    assert 0.7 < kept.double().mean() < 0.9
    torch.testing.assert_close(y, torch.where(kept, x / kept_share(0.2), 0.0))
    torch.testing.assert_close(x.grad, torch.where(kept, 1 / kept_share(0.2), 0.0).double())


def test_adding_what_is_left_is_dropping_and_adding():
    x, branch = (torch.randn(6, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    dropout = Dropout(0.4)
    torch.manual_seed(5)
    at_once = dropout.add(x, branch)
    grads = torch.autograd.grad(at_once.square().sum(), (x, branch))
    torch.manual_seed(5)
    one_by_one = x + dropout(branch)
    torch.testing.assert_close(at_once, one_by_one)
    torch.testing.assert_close(grads, torch.autograd.grad(one_by_one.square().sum(), (x, branch)))


def test_a_narrow_branch_gets_a_narrow_gradient():
    x, branch = (
        torch.zeros(4, 3, requires_grad=True),
        torch.ones(4, 3, dtype=torch.bfloat16, requires_grad=True),
    )
    Dropout(0.5).add(x, branch).sum().backward()
    assert x.grad.dtype == torch.float32
    assert branch.grad.dtype == torch.bfloat16


def test_where_nothing_is_trained_nothing_is_dropped():
    x = torch.randn(3, 4)
    assert Dropout(0.9).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize(("function", "approximate"), [(gelu, "none"), (gelu_tanh, "tanh")])
def test_on_a_cpu_gelu_is_torchs_own_compiled_or_not(function, approximate):
    x = torch.linspace(-9, 9, 501, requires_grad=True)
    theirs = F.gelu(x, approximate=approximate)
    for ours in (function(x), torch.compile(function, backend="aot_eager", fullgraph=True)(x)):
        assert torch.equal(ours, theirs)
        grads = [torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (ours, theirs)]
        assert torch.equal(*grads)
