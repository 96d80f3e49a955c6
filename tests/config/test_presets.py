"""The table of presets and the configuration's own checks."""

import dataclasses

import pytest
from expected_errors import refused

from headstart.config.model import ModelConfig
from headstart.config.presets import PRESETS, preset
from headstart.config.schema import build


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
    ("overrides", "code", "names"),
    [
        ({"heads": 3}, "conflict", ("3 heads", "width 200", "--heads one of 1, 2, 4")),
        ({"width": 0}, "bad-value", ("width is 0",)),
        ({"dropout": 1.0}, "bad-value", ("dropout is 1.0",)),
        ({"vocab": -1}, "bad-value", ("vocab is -1",)),
        ({"positions": "rotary", "width": 9, "heads": 3}, "conflict", ("rotary", "3", "width / heads")),
        ({"target_vocab": 5}, "missing", ("--decoder-depth",)),
        ({"heads": 4, "kv_heads": 3}, "conflict", ("3 heads", "4 heads", "--kv-heads one of 1, 2, 4")),
        ({"rotary_base": 1.0}, "bad-value", ("rotary_base is 1.0",)),
        ({"wdith": 5}, "unknown-name", ("'wdith'", "'width'")),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_way_out(overrides, code, names):
    with refused(code, *names):
        preset("lab", **overrides)


def test_an_unknown_preset_names_its_neighbour():
    with refused("unknown-name", "'gpt-2'", "'gpt2'"):
        preset("gpt-2")


def test_a_configuration_from_before_a_field_still_loads():
    """Whoever adds a field gives it a default: a run's config.toml may be older."""
    config = preset("lab", vocab=9)
    newer = {"kv_heads", "rotary_base", "pooler_activation"}
    old = {key: value for key, value in dataclasses.asdict(config).items() if key not in newer}
    assert build(ModelConfig, old, "config.toml") == config
