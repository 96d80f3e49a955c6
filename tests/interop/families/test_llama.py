"""Llama's and Mistral's config.json in our words: the models come to the published number of parameters."""

import pytest
from expected_errors import refused

from headstart.interop.families.decoders import Llama, Mistral
from headstart.interop.families.fields import Fields
from headstart.planning.parameters import total

# Llama-2-7b
CONFIG = {
    "vocab_size": 32_000, "hidden_size": 4_096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "max_position_embeddings": 4_096, "rms_norm_eps": 1e-5,
}  # fmt: skip
# What is another in Mistral-7B.
MISTRAL = {"intermediate_size": 14_336, "num_key_value_heads": 8, "sliding_window": None}


def described(family=None, **changes):
    fields = Fields({**CONFIG, **changes}, "config.json")
    return (family or Llama()).described(fields, frozenset({"lm_head.weight"}))


@pytest.mark.parametrize(
    ("family", "changes", "parameters"), [(Llama(), {}, 6_738_415_616), (Mistral(), MISTRAL, 7_241_732_096)]
)
def test_it_has_the_published_parameters(family, changes, parameters):
    found = described(family, **changes)
    assert total(found.model, found.head) == parameters


def test_it_has_rotary_positions_rms_norm_and_a_gated_feed_forward():
    model = described(rope_theta=5e5).model
    assert (model.positions, model.rotary_base, model.norm, model.bias) == ("rotary", 5e5, "rms", False)
    assert (model.activation, model.norm_place, model.norm_epsilon) == ("swiglu", "pre", 1e-5)


@pytest.mark.parametrize(
    "change",
    [{"attention_bias": True}, {"mlp_bias": True}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}],
)
def test_what_we_cannot_compute_is_refused_by_name(change):
    with refused("unsupported", next(iter(change))):
        described(**change)


def test_a_window_is_refused():
    with refused("unsupported", "sliding_window"):
        described(Mistral(), **{**MISTRAL, "sliding_window": 4_096})
