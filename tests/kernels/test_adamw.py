"""AdamW takes what its device is quickest with, and shows the gradients that stand in no parameter."""

from unittest.mock import Mock

import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.training import OptimizerConfig
from headstart.kernels.adamw import AdamW
from headstart.model.model import build
from headstart.training.optimizers.optimizer import build_optimizers, set_learning_rate

CONFIG = preset("lab", vocab=300, width=10, depth=1, heads=2, ffn=12)


def made():
    """A model with its optimizers, by rows."""
    model = build(CONFIG, HeadConfig(kind="classification"), seed=0)
    optimizers = build_optimizers(model, CONFIG, OptimizerConfig(learning_rate=1e-3))
    set_learning_rate(optimizers, 1.0)
    return model, optimizers


def tokens_of(seed):
    return torch.randint(300, (2, 5), generator=torch.Generator().manual_seed(seed))


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
    (grads,) = adam.row_gradients()
    assert len(grads) == len(tokens.unique())
    torch.testing.assert_close(grads.norm(), whole)


def test_a_gradient_that_is_forgotten_moves_nothing():
    model, (adam,) = made()
    before = model.base.embedding.tokens.weight.clone()
    model(tokens_of(0)).square().sum().backward()
    adam.zero_grad(set_to_none=True)
    adam.step()
    assert torch.equal(before, model.base.embedding.tokens.weight)


def test_a_cpu_needs_no_kernel(monkeypatch):
    monkeypatch.setattr("headstart.kernels.adamw.is_available", Mock(side_effect=AssertionError("was asked")))
    weight = torch.zeros(4, requires_grad=True)
    assert AdamW([{"params": [weight]}], lr=0.1).by_kernels([torch.zeros(4)]) is None
