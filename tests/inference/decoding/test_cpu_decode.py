"""A step in few calls: it is what the model itself computes, for every kind of block, and knows where it must not."""

import gc
import weakref

import pytest
import torch
from decoded import write
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import model_configs
from uncached_reader import UncachedReader

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.inference.decoding import cpu_decode
from headstart.inference.decoding.readers import CachedReader, TranslationReader
from headstart.model.model import build

PRESETS = ["lab", "tiny", "gpt2", "modern-small"]
SMALL = {"vocab": 37, "width": 32, "heads": 4, "ffn": 48, "depth": 2}
SEEN = torch.tensor([[True] * 4, [False, False, True, True], [False, True, True, True]])


def make(name="tiny", **overrides):
    model = build(preset(name, **{**SMALL, **overrides}), HeadConfig(kind="lm"), seed=1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 0.2)
    return model


def tokens(*shape, seed=0, vocab=37):
    return torch.randint(vocab, shape, generator=torch.Generator().manual_seed(seed))


def logits(reader, prompt, present, steps, rows=None):
    """Of each step after a prompt; `rows` says which go on after the second."""
    with torch.inference_mode():
        found = [reader.read(prompt, present)]
        for number in range(steps):
            if rows is not None and number == 2:
                reader.select(rows)
            found.append(reader.read(tokens(len(found[-1] if number != 2 or rows is None else rows), 1, seed=number)))
    return found


@pytest.fixture
def transposed_at_once(monkeypatch):
    monkeypatch.setattr(cpu_decode, "TRANSPOSED_AFTER", 0)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("kv_heads", [0, 2])
@pytest.mark.parametrize("present", [None, SEEN])
def test_a_step_is_what_the_model_computes(name, kv_heads, present):
    model = make(name, kv_heads=kv_heads)
    rows = torch.tensor([2, 0])
    ours = logits(CachedReader(model), tokens(3, 4), present, 5, rows)
    theirs = logits(UncachedReader(model), tokens(3, 4), present, 5, rows)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("transposed_at_once")
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("threads", [1, 2])
def test_matrices_that_are_turned_give_the_same(name, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model = make(name)
    reader = CachedReader(model)
    ours = logits(reader, tokens(1, 4), None, 4)
    assert reader._cpu_step.output.transposed.shape == (threads, 32, -(-37 // threads))
    assert any(layer.input.transposed is not None for layer, _ in reader._cpu_step.blocks[0].sublayers)
    for one, other in zip(ours, logits(UncachedReader(model), tokens(1, 4), None, 4), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=30)
@given(model_configs(shapes=["causal", "encoder-decoder"]), st.integers(1, 3), st.booleans())
def test_ways_of_any_model_are_what_the_model_computes(config, ways, is_padded):
    translates = config.shape == "encoder-decoder"
    model = build(config, HeadConfig(kind="translation" if translates else "lm"), seed=1).double().eval()
    source = (tokens(3, 4, vocab=config.vocab), SEEN if is_padded else None) if translates else ()
    vocab, present = config.output_vocab, None if translates or not is_padded else SEEN
    found = []
    with torch.inference_mode():
        quick = TranslationReader(model, *source) if translates else CachedReader(model)
        for reader in (quick, UncachedReader(model, *source)):
            reader.read(tokens(3, 4, vocab=vocab), present)
            parents = torch.zeros(3, ways, dtype=torch.long)
            reader.branch(tokens(3, ways, seed=1, vocab=vocab), parents)
            found.append(reader.branch(tokens(3, ways, seed=2, vocab=vocab), tokens(3, ways, vocab=ways)))
    torch.testing.assert_close(*found, atol=1e-9, rtol=1e-9)


def test_where_it_must_not_the_model_itself_is_asked(monkeypatch):
    model = make()
    monkeypatch.setattr(cpu_decode.DecodeStep, "__call__", lambda *given: pytest.fail("a step in few calls"))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        reader = CachedReader(model)
        reader.read(tokens(1, 3))
        reader.read(tokens(1, 1))
    reader = CachedReader(model)
    reader.read(tokens(1, 3))
    assert reader.read(tokens(1, 1)).requires_grad
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    translator = build(
        preset("transformer-tiny", **SMALL, decoder_depth=1), HeadConfig(kind="translation"), seed=1
    ).eval()
    with torch.inference_mode():
        reader = TranslationReader(translator, tokens(1, 4), nothing)
        reader.read(tokens(1, 1))
        assert reader.read(tokens(1, 1)).isfinite().all()


@pytest.mark.usefixtures("transposed_at_once")
def test_weights_that_have_changed_are_read_again():
    model = make()
    before = logits(CachedReader(model), tokens(1, 4), None, 3)[-1]
    assert CachedReader(model)._cpu_step is CachedReader(model)._cpu_step, "transposed once for all texts"
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    after = logits(CachedReader(model), tokens(1, 4), None, 3)[-1]
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, logits(UncachedReader(model), tokens(1, 4), None, 3)[-1], atol=1e-5, rtol=1e-5)


def test_a_model_that_nobody_uses_is_let_go():
    model = make()
    CachedReader(model)
    known = weakref.ref(model)
    del model
    gc.collect()
    assert known() is None


@pytest.mark.parametrize("chunk", [8, 37, 100])
@pytest.mark.parametrize("output_bias", [True, False])
def test_logits_in_chunks_are_the_layers_own(chunk, output_bias, monkeypatch):
    monkeypatch.setattr(cpu_decode, "CHUNK", chunk)
    layer = make(output_bias=output_bias).head.output
    x = torch.randn(9, 32)
    with torch.inference_mode():
        torch.testing.assert_close(cpu_decode.OutputLayer(layer)(x), layer(x))


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("batch", [1, 5])
def test_without_logits_greedy_writes_the_same(name, batch, monkeypatch):
    monkeypatch.setattr("headstart.inference.decoding.candidate_vocab.FEWEST_TOKENS", 1)
    model = make(name, vocab=301, output_bias=True)
    prompts = [list(row) for row in tokens(batch, 3).tolist()]
    rules = {"max_tokens": 12, "end": 7, "never": (0, 1, 300)}
    written = [write(CachedReader(model), prompts, with_logits=kept, **rules) for kept in (True, False)]
    assert written[0] == written[1]
