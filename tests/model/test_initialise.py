"""The first weights: a function of name and seed, with each preset's own deviations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import heads_for, model_configs
from torch import nn

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.model.model import build


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_parameter_is_filled_and_repeatable(data):
    config = data.draw(model_configs())
    head = data.draw(heads_for(config))
    torch.manual_seed(data.draw(st.integers(0, 9)))  # the global state must not matter
    first, again = build(config, head, seed=3), build(config, head, seed=3)
    for name, parameter in first.named_parameters():
        assert parameter.isfinite().all(), name
        assert torch.equal(parameter, again.get_parameter(name)), name


def test_the_base_does_not_depend_on_the_head_and_does_on_the_seed():
    config = preset("tiny", vocab=9)
    language = build(config, HeadConfig(kind="lm"), seed=1)
    sentence = build(config, HeadConfig(kind="classification"), seed=1)
    other = build(config, HeadConfig(kind="lm"), seed=2)
    name = "base.stack.blocks.0.attention.qkv.weight"
    assert torch.equal(language.get_parameter(name), sentence.get_parameter(name))
    assert not torch.equal(language.get_parameter(name), other.get_parameter(name))


def deviation(model, name):
    return model.get_parameter(name).std().item()


def test_gpt2_divides_what_adds_to_the_residual():
    model = build(preset("gpt2", vocab=500, width=256, heads=8, depth=8), HeadConfig(kind="lm"))
    block = "base.stack.blocks.3"
    assert deviation(model, f"{block}.attention.qkv.weight") == pytest.approx(0.02, rel=0.02)
    for name in ("attention.output", "feed_forward.output"):
        assert deviation(model, f"{block}.{name}.weight") == pytest.approx(0.02 / 4, rel=0.02)
    assert (model.get_parameter(f"{block}.attention.qkv.bias") == 0).all()
    assert (model.get_parameter(f"{block}.attention_norm.weight") == 1).all()


def test_bert_is_normal_everywhere():
    model = build(preset("bert-base", vocab=500, width=240, depth=2), HeadConfig(kind="masked"))
    for name in ("base.embedding.tokens", "base.stack.blocks.1.feed_forward.output", "head.transform"):
        assert deviation(model, f"{name}.weight") == pytest.approx(0.02, rel=0.03)


def test_2017_is_xavier():
    model = build(preset("transformer-base", vocab=500, depth=1, decoder_depth=1), HeadConfig(kind="translation"))
    assert deviation(model, "base.embedding.tokens.weight") == pytest.approx(512**-0.5, rel=0.02)
    expected = math.sqrt(2 / (512 + 2048))
    assert deviation(model, "base.decoder.blocks.0.feed_forward.input.weight") == pytest.approx(expected, rel=0.02)


def test_lab_has_the_deviations_of_the_courses_modules():
    model = build(preset("lab", vocab=500), HeadConfig(kind="lm"))
    layer = nn.TransformerEncoderLayer(200, 2, 200)
    block = "base.stack.blocks.0"
    for ours, theirs in (
        ("attention.qkv.weight", layer.self_attn.in_proj_weight),
        ("attention.output.weight", layer.self_attn.out_proj.weight),
        ("feed_forward.input.weight", layer.linear1.weight),
        ("feed_forward.output.weight", layer.linear2.weight),
    ):
        assert deviation(model, f"{block}.{ours}") == pytest.approx(theirs.std().item(), rel=0.03), ours
    for name in ("base.embedding.tokens.weight", "head.output.weight"):
        assert deviation(model, name) == pytest.approx(0.1 / math.sqrt(3), rel=0.02)
    assert (model.get_parameter("head.output.bias") == 0).all()
