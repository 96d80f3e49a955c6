"""Heads of a width that a GPU's kernels do not take: computed in wider ones, to the same numbers."""

import pytest
import torch

from headstart.model.attention import Attention
from headstart.model.masks import Cuts, Mask
from headstart.model.presets import preset

MASKS = {
    "causal": Mask(causal_square=True),
    "all": Mask(),
    "cuts": Mask(causal_square=True, cuts=Cuts.of([4, 1, 4])),
}


def attention(**fields):
    torch.manual_seed(3)
    shape = {"width": 60, "heads": 6, "ffn": 16, "depth": 1, "vocab": 20, "attention_dropout": 0.0}
    return Attention(preset("gpt2", **shape, **fields)).double()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("fields", [{}, {"bias": False}, {"kv_heads": 2}], ids=str)
def test_wider_heads_give_the_same_and_learn_the_same(fields, mask):
    layer = attention(**fields)
    x = torch.randn(1, 9, 60, dtype=torch.float64)
    slopes = torch.randn(1, 9, 60, dtype=torch.float64)
    found = []
    for function in (layer, layer.in_wider_heads):
        layer.zero_grad()
        mixed = function(x, MASKS[mask])
        mixed.backward(slopes)
        found.append([mixed.detach(), *(parameter.grad for parameter in layer.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
