"""Heads of a width that a GPU's kernels do not take: computed in wider ones, to the same numbers."""

import pytest
import torch

from headstart.config.presets import preset
from headstart.kernels.unpadding import Varlen
from headstart.kernels.wider_heads import attend_in_wider_heads
from headstart.model.attention import Mask
from headstart.model.blocks import MultiHeadAttention

MASKS = {
    "causal": Mask(causal_square=True),
    "all": Mask(),
    "varlen": Mask(causal_square=True, varlen=Varlen.of([4, 1, 4])),
}


def attention(**fields):
    torch.manual_seed(3)
    shape = {"width": 60, "heads": 6, "ffn": 16, "depth": 1, "vocab": 20, "attention_dropout": 0.0}
    return MultiHeadAttention(preset("gpt2", **shape, **fields)).double()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("fields", [{}, {"bias": False}, {"kv_heads": 2}], ids=str)
def test_wider_heads_give_the_same_and_learn_the_same(fields, mask):
    layer = attention(**fields)
    x = torch.randn(1, 9, 60, dtype=torch.float64)
    grads = torch.randn(1, 9, 60, dtype=torch.float64)
    found = []

    def widened(x, mask):
        return attend_in_wider_heads(x, layer.qkv, layer.output, layer.widths, layer.head_width, mask, 0.0)

    for function in (layer, widened):
        layer.zero_grad()
        mixed = function(x, MASKS[mask])
        mixed.backward(grads)
        found.append([mixed.detach(), *(parameter.grad for parameter in layer.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
