"""The count from the configuration is the built model's, tensor by tensor; the formulas say the same number."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import heads_for, model_configs

from headstart.config.model import HeadConfig
from headstart.config.presets import PRESETS, preset
from headstart.model.model import Model
from headstart.planning import parameters


def total(config, head):
    return sum(component.count for component in parameters.components(config, head))


@pytest.mark.parametrize(
    ("name", "vocab", "head", "expected"),
    [
        ("lab", 100, HeadConfig(kind="lm"), 1_008_100),
        ("lab", 100, HeadConfig(kind="classification", classes=2), 988_402),
        ("lab", 50_001, HeadConfig(kind="lm"), 21_018_401),
        ("transformer-base", 37_000, HeadConfig(kind="translation"), 63_082_496),
        # the counts that Hugging Face prints for the published checkpoints
        ("gpt2", 50_257, HeadConfig(kind="lm"), 124_439_808),
        ("bert-base", 30_522, HeadConfig(kind="masked"), 109_514_298),
        ("bert-base", 30_522, HeadConfig(kind="classification", classes=2), 109_483_778),
    ],
)
def test_known_counts(name, vocab, head, expected):
    assert total(preset(name, vocab=vocab), head) == expected


def test_an_output_bias_adds_the_vocabulary():
    config = preset("transformer-base", vocab=37_000, output_bias=True)
    assert total(config, HeadConfig(kind="translation")) == 63_082_496 + 37_000


def built(config, head):
    return {name: parameter.numel() for name, parameter in Model(config, head).named_parameters()}


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_the_plan_is_the_built_model_tensor_by_tensor(data):
    config = data.draw(model_configs())
    head = data.draw(heads_for(config))
    values = parameters.symbols(config, head)
    planned = {t.name: parameters.count(t, values) for t in parameters.tensors(config, head)}
    assert planned == built(config, head)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_planned_as_it_is_built(name):
    config = preset(name, vocab=50)
    head = HeadConfig(kind="translation" if config.decoder_depth else "lm")
    assert total(config, head) == sum(built(config, head).values())


def value_of(formula, values):
    """Read a formula as a person would: letters side by side multiply, ² squares."""
    spaced = re.sub(r"(?<=[\w²)])(?=[A-Za-z(])", "·", formula)
    expression = spaced.replace("²", "**2").replace("·", "*")
    return eval(expression, {"__builtins__": {}}, dict(values))


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_the_formulas_give_the_counts(data):
    config = data.draw(model_configs())
    head = data.draw(heads_for(config))
    values = parameters.symbols(config, head)
    for component in parameters.components(config, head):
        assert value_of(component.formula, values) == component.count, component


def test_formulas_by_hand():
    rows = {c.name: c.formula for c in parameters.components(preset("lab", vocab=100), HeadConfig(kind="lm"))}
    assert rows["base.embedding.tokens"] == "V·d"
    assert rows["base.stack.blocks.*.attention.qkv"] == "L·(3d² + 3d)"
    assert rows["base.stack.blocks.*.attention_norm"] == "L·2d"
    assert rows["head.output"] == "V·d + V"


def test_formulas_of_shared_keys_by_hand():
    config = preset("modern-small", vocab=100, kv_heads=2, bias=True)
    rows = {c.name: c for c in parameters.components(config, HeadConfig(kind="lm"))}
    qkv = rows["base.stack.blocks.*.attention.qkv"]
    assert qkv.formula == "L·(d² + 2k·d + d + 2k)"
    assert qkv.count == 6 * (512 * 512 + 2 * 128 * 512 + 512 + 2 * 128)
    assert parameters.symbols(config, HeadConfig(kind="lm"))["k"] == 128
    assert parameters.symbols(preset("lab", vocab=9), HeadConfig(kind="lm"))["k"] == 0  # not in any formula


def test_what_is_frozen_does_not_learn():
    config, head = preset("lab", vocab=100), HeadConfig(kind="classification", classes=2)
    learning = [c.count for c in parameters.components(config, head) if parameters.trainable(c, "base")]
    assert sum(learning) == 402
