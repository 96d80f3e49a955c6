"""What a model may be."""

import pytest
from expected_errors import refused

from headstart.config.model import HeadConfig, check_head, usual_pooling
from headstart.config.presets import preset


@pytest.mark.parametrize(
    ("changes", "code", "name"),
    [
        ({"width": 0}, "bad-value", "width"), ({"heads": 3}, "conflict", "--heads"),
        ({"dropout": 1.0}, "bad-value", "dropout"), ({"kv_heads": 3}, "conflict", "--kv-heads"),
        ({"rotary_base": 1.0}, "bad-value", "rotary_base"), ({"target_vocab": 9}, "missing", "--decoder-depth"),
        ({"vocab": -1}, "bad-value", "vocab"), ({"norm": "batch"}, "bad-value", "norm"),
    ],
)  # fmt: skip
def test_shapes_that_cannot_be_are_refused_by_name(changes, code, name):
    with refused(code, name):
        preset("tiny", **changes)


def test_widths_follow_from_the_heads():
    model = preset("tiny", vocab=9, width=64, heads=8, kv_heads=2)
    assert (model.kv_width, model.output_vocab, model.shape) == (16, 9, "causal")
    assert preset("transformer-tiny", vocab=9, target_vocab=7).output_vocab == 7


def test_a_bidirectional_base_without_a_pooler_is_pooled_by_the_mean():
    assert usual_pooling(preset("tiny", direction="bidirectional")) == "mean"
    assert usual_pooling(preset("bert-base")) is usual_pooling(preset("tiny")) is None
    assert HeadConfig(kind="classification").pooling_for(preset("tiny")) == "last"


def test_translation_needs_two_stacks_and_nothing_else_takes_them():
    check_head(preset("transformer-tiny", vocab=9), HeadConfig(kind="translation"))
    for name, kind in (("tiny", "translation"), ("transformer-tiny", "lm")):
        with refused("conflict", f"a {kind} head", "encoder-decoder"):
            check_head(preset(name, vocab=9), HeadConfig(kind=kind))
    with refused("missing", "--vocab"):
        check_head(preset("tiny"), HeadConfig())
