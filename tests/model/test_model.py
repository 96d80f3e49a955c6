"""The swap: what is carried, what is new, what is dropped; and never a silent fresh start."""

import dataclasses

import pytest
import torch
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import heads_for, model_configs

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.errors import IntegrityError
from headstart.model.model import build, swap, transfer


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_tensor_is_accounted_for(data):
    config = data.draw(model_configs(shapes=("causal", "bidirectional")))
    start = build(config, data.draw(heads_for(config)), seed=1)
    model, audit = swap(start, data.draw(heads_for(config)), seed=2)
    before, after = dict(start.named_parameters()), dict(model.named_parameters())
    fresh = dict(build(config, model.head_config, seed=2).named_parameters())
    carried, new, dropped = map(set, (audit.carried, audit.new, audit.dropped))
    assert carried | new == set(after)
    assert carried | dropped >= set(before)
    assert not carried & new
    assert {name for name in before if name.startswith("base.")} <= carried
    assert all(torch.equal(after[name], before[name]) for name in carried)
    assert all(torch.equal(after[name], fresh[name]) for name in new)
    assert {**audit.carried, **audit.new} == {name: p.numel() for name, p in after.items()}


def test_the_courses_swap_by_hand():
    start = build(preset("lab", vocab=100), HeadConfig(kind="lm"))
    model, audit = swap(start, HeadConfig(kind="classification", classes=2))
    assert list(audit.new) == ["head.classifier.weight", "head.classifier.bias"]
    assert list(audit.dropped) == ["head.output.weight", "head.output.bias"]
    assert sum(audit.carried.values()) == 988_000
    assert "2 tensors made anew (402 parameters): head.classifier.weight, head.classifier.bias" in str(audit)
    tokens = torch.arange(10)[None]
    assert torch.equal(model.eval().base(tokens), start.eval().base(tokens))


def test_the_new_model_does_not_share_memory_with_the_start():
    start = build(preset("tiny", vocab=9), HeadConfig(kind="lm"))
    model, _ = swap(start, HeadConfig(kind="classification"))
    before = start.base.embedding.tokens.weight.clone()
    with torch.no_grad():
        model.base.embedding.tokens.weight.zero_()
    assert torch.equal(start.base.embedding.tokens.weight, before)


def test_berts_pooler_goes_from_next_sentence_to_classification():
    config = preset("bert-base", vocab=9, width=16, heads=2, ffn=16, depth=1)
    _, audit = swap(build(config, HeadConfig(kind="masked-nsp")), HeadConfig(kind="classification"))
    assert {"head.pooler.weight", "head.pooler.bias"} <= audit.carried.keys()
    _, audit = swap(build(config, HeadConfig(kind="masked")), HeadConfig(kind="classification"))
    assert {"head.pooler.weight", "head.pooler.bias"} <= audit.new.keys()


def test_a_classifier_is_never_carried():
    start = build(preset("tiny", vocab=9), HeadConfig(kind="classification", classes=3), seed=1)
    _, audit = swap(start, HeadConfig(kind="classification", classes=3), seed=2)
    assert set(audit.new) == {"head.classifier.weight", "head.classifier.bias"}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"width": 64}, ("width is 128", "64")),
        ({"depth": 3}, ("depth is 2", "3")),
        ({"vocab": 10}, ("vocab is 9", "10")),
        ({"tokenizer": "bbbb"}, ("tokenizer aaaa", "bbbb")),
        ({"positions": "sinusoidal"}, ("positions is rotary", "sinusoidal")),
        ({"activation": "relu"}, ("activation is gelu", "relu")),
    ],
)
def test_another_base_is_an_error_that_says_which(change, names):
    config = preset("tiny", vocab=9, tokenizer="aaaa")
    start = build(config, HeadConfig(kind="lm"))
    target = build(dataclasses.replace(config, **change), HeadConfig(kind="classification"))
    with refused("mismatch", *names, by=IntegrityError):
        transfer(dict(start.named_parameters()), config, target)


def test_a_longer_learned_table_is_an_error_that_names_the_tensor():
    config = preset("gpt2", vocab=9, width=16, heads=2, ffn=16, depth=1, context=8)
    start = build(config, HeadConfig(kind="lm"))
    target = build(dataclasses.replace(config, context=16), HeadConfig(kind="lm"))
    with refused("mismatch", "base.embedding.positions.weight", "(8, 16)", "(16, 16)", by=IntegrityError):
        transfer(dict(start.named_parameters()), config, target)


def test_nothing_carried_is_an_error():
    config = preset("tiny", vocab=9)
    target = build(config, HeadConfig(kind="classification"))
    strange = {"model.layers.0.weight": torch.zeros(3)}
    with refused("mismatch", "model.layers.0.weight", by=IntegrityError):
        transfer(strange, config, target)
    only_head = {"head.output.weight": torch.zeros(9, 128)}
    with refused("mismatch", "the start has head.output.weight", by=IntegrityError):
        transfer(only_head, config, target)


@pytest.mark.parametrize(("into", "stacks"), [("encoder", 1), ("decoder", 1), ("both", 2)])
def test_a_single_stack_can_start_an_encoder_decoder(into, stacks):
    single = preset("transformer-tiny", vocab=9, width=16, ffn=16, decoder_depth=0, depth=2)
    double = preset("transformer-tiny", vocab=9, width=16, ffn=16, decoder_depth=2, depth=2)
    start = build(single, HeadConfig(kind="masked"), seed=1)
    target = build(double, HeadConfig(kind="translation"), seed=2)
    audit = transfer(dict(start.named_parameters()), single, target, into=into)
    in_stack = sum(name.startswith("base.stack.") for name in dict(start.named_parameters()))
    carried = audit.carried
    assert len(carried) == 1 + stacks * in_stack
    assert all(".cross_" not in name for name in carried)
    own, theirs = target.base.encoder if into != "decoder" else target.base.decoder, start.base.stack
    weight = "blocks.1.attention.qkv.weight"
    assert torch.equal(own.get_parameter(weight), theirs.get_parameter(weight))
