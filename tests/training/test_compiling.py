"""Compiled blocks and a compiled loss: the same numbers, one compilation for all shapes, nothing left behind."""

import pytest
import torch

from headstart.model.chunked_loss import IGNORED, loss_and_slopes
from headstart.model.chunked_loss import compiled as compiled_loss
from headstart.model.model import build
from headstart.model.presets import HeadConfig, preset
from headstart.training.compiling import as_written, compiled

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
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2, (
        "a block of the encoder, one of the decoder"
    )
    for ours, plain in zip(found, expected, strict=True):
        for one, other in zip(ours, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert all(module._compiled_call_impl is None for module in model.modules())
    assert not model.head.is_compiled


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_compiled_loss_is_the_loss(smoothing):
    draws = torch.Generator().manual_seed(1)
    logits, bias = torch.randn(9, 40, generator=draws), torch.randn(40, generator=draws)
    targets = torch.randint(40, (9,), generator=draws)
    targets[2] = IGNORED
    plain = loss_and_slopes(logits.clone(), bias, targets, smoothing, True, True)
    found = compiled_loss()(logits.clone(), bias, targets, smoothing, True, True)
    assert found.right == plain.right
    torch.testing.assert_close(found.sum, plain.sum)
    torch.testing.assert_close(found.slopes, plain.slopes)
    assert not found.slopes[2].any()
