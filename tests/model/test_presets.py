"""The table of presets and the configuration's own checks."""

import dataclasses

import pytest

from headstart.config import build
from headstart.errors import UserError
from headstart.model.presets import PRESETS, ModelConfig, preset


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_configuration_without_a_vocabulary(name):
    config = preset(name)
    assert isinstance(config, ModelConfig)
    assert config.vocab == 0


def test_the_issues_table():
    sizes = {
        name: (c.width, c.depth, c.decoder_depth, c.heads, c.ffn, c.norm_place, c.positions)
        for name in PRESETS
        for c in [preset(name)]
    }
    assert sizes["lab"] == (200, 4, 0, 2, 200, "post", "sinusoidal")
    assert sizes["tiny"] == (128, 2, 0, 4, 512, "pre", "rotary")
    assert sizes["transformer-base"] == (512, 6, 6, 8, 2048, "post", "sinusoidal")
    assert sizes["transformer-tiny"] == (256, 4, 4, 4, 1024, "post", "sinusoidal")
    assert sizes["modern-small"][:4] == (512, 6, 0, 8)
    assert sizes["modern-base"][:4] == (768, 12, 0, 12)
    for name in ("modern-small", "modern-base"):
        config = preset(name)
        assert (config.positions, config.norm, config.activation) == ("rotary", "rms", "swiglu")
        assert (config.norm_place, config.bias) == ("pre", False)
    assert preset("lab").dropout == 0.2


def test_every_field_can_be_overridden_and_none_leaves_it():
    config = preset("lab", width=128, heads=4, dropout=0.0, depth=None)
    assert (config.width, config.heads, config.dropout, config.depth) == (128, 4, 0.0, 4)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"heads": 3}, "3 heads do not divide the width 200"),
        ({"width": 0}, "width is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"vocab": -1}, "vocab is -1"),
        ({"positions": "rotary", "width": 9, "heads": 3}, "rotary positions turn pairs"),
        ({"target_vocab": 5}, "without a decoder"),
        ({"heads": 4, "kv_heads": 3}, "3 heads of keys and values do not divide 4 heads"),
        ({"rotary_base": 1.0}, "rotary_base is 1.0"),
        ({"wdith": 5}, "did you mean 'width'"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_way_out(overrides, message):
    with pytest.raises(UserError, match=message):
        preset("lab", **overrides)


def test_an_unknown_preset_names_its_neighbour():
    with pytest.raises(UserError, match="did you mean 'gpt2'"):
        preset("gpt-2")


def test_a_configuration_from_before_a_field_still_loads():
    """Whoever adds a field gives it a default: a run's config.toml may be older."""
    config = preset("lab", vocab=9)
    newer = {"kv_heads", "rotary_base", "pooler_activation"}
    old = {key: value for key, value in dataclasses.asdict(config).items() if key not in newer}
    assert build(ModelConfig, old, "config.toml") == config
