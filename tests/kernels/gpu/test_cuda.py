"""On a GPU the model is the model: the same numbers as on the CPU, and masked rows as harmless."""

import pytest
import torch
from decoded import write

from headstart.config.model import HeadConfig
from headstart.config.presets import PRESETS, preset
from headstart.inference.decoding.readers import CachedReader
from headstart.kernels.attention import attend
from headstart.model.attention import attend_with_weights, build_mask
from headstart.model.model import build

pytestmark = pytest.mark.gpu
SMALL = {"vocab": 19, "width": 64, "heads": 4, "ffn": 96, "depth": 2}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [4, 64, 130])
def test_rows_that_see_nothing_give_zeros_and_finite_gradients(dtype, length):
    query, key, value = (torch.randn(2, 4, length, 64, device="cuda").to(dtype).requires_grad_() for _ in range(3))
    present = torch.ones(2, length, dtype=torch.bool, device="cuda")
    present[0, :3] = present[1] = False
    mask = build_mask(length, length, causal=True, keys_present=present, device="cuda")
    out = attend(query, key, value, mask)
    assert (out[0, :, :3] == 0).all()
    assert (out[1] == 0).all()
    torch.testing.assert_close(out, attend_with_weights(query, key, value, mask)[0], rtol=0.02, atol=0.02)
    out.float().square().sum().backward()
    for tensor in (query, key, value):
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("name", [name for name in PRESETS if not name.startswith("transformer")])
@pytest.mark.parametrize("kind", ["lm", "masked", "classification", "multilabel", "regression"])
@pytest.mark.parametrize("reading", ["plain", "padded", "packed"])
def test_outputs_and_gradients_are_the_cpus(name, kind, reading):
    model = build(preset(name, **SMALL, **NO_DROPOUT), HeadConfig(kind=kind)).double()
    tokens = torch.randint(19, (3, 9), generator=torch.Generator().manual_seed(0))
    extra, present = {}, torch.ones(3, 9, dtype=torch.bool)
    if reading == "padded":
        extra["present"] = present = torch.arange(9) < torch.tensor([[9], [4], [1]])
    elif reading == "packed":
        extra["documents"] = (torch.arange(9) > 3).long().expand(3, 9)
    results = []
    for device in ("cpu", "cuda"):
        model.to(device).zero_grad()
        out = model(tokens.to(device), **{key: value.to(device) for key, value in extra.items()})
        if kind in ("lm", "masked"):  # what stands on padding is nobody's
            out = out[present.to(device)]
        out.square().sum().backward()
        gradients = {n: p.grad.cpu().clone() for n, p in model.named_parameters() if p.grad is not None}
        results.append((out.detach().cpu(), gradients))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-8, atol=1e-10)
    assert set(results[0][1]) == set(results[1][1])
    for n, gradient in results[0][1].items():
        torch.testing.assert_close(gradient, results[1][1][n], rtol=1e-6, atol=1e-9)


def test_greedy_decoding_writes_what_the_cpu_writes():
    model = build(preset("modern-small", **SMALL), HeadConfig(kind="lm")).double().eval()
    prompts = [[1, 2, 3], [4]]
    texts = []
    for device in ("cpu", "cuda"):
        texts.append(write(CachedReader(model.to(device)), prompts, max_tokens=20, device=device))
    assert texts[0] == texts[1]


def test_the_first_weights_are_the_same_on_every_device():
    with torch.device("cuda"):
        there = build(preset("tiny", **SMALL), HeadConfig(kind="lm"), seed=3)
    here = build(preset("tiny", **SMALL), HeadConfig(kind="lm"), seed=3)
    for (name, a), (_, b) in zip(there.named_parameters(), here.named_parameters(), strict=True):
        assert a.is_cuda
        assert torch.equal(a.cpu(), b), name
