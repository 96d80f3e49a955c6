"""GPT-2's config.json in our words: every size comes to the published number of parameters."""

import pytest
from expected_errors import refused

from headstart.interop.families.decoders import Gpt2
from headstart.interop.families.fields import Fields
from headstart.planning.parameters import total


def described(*names, **changes):
    return Gpt2().described(Fields({"vocab_size": 50_257, **changes}, "config.json"), frozenset(names))


@pytest.mark.parametrize(
    ("width", "depth", "heads", "parameters"),
    [(768, 12, 12, 124_439_808), (1_024, 24, 16, 354_823_168), (1_280, 36, 20, 774_030_080),
     (1_600, 48, 25, 1_557_611_200)],
)  # fmt: skip
def test_it_has_the_published_parameters(width, depth, heads, parameters):
    found = described(n_embd=width, n_layer=depth, n_head=heads)
    assert total(found.model, found.head) == parameters


def test_it_reads_forwards_normalises_first_and_ties_its_output():
    found = described()
    assert (found.objective, found.frame, found.head.kind) == ("causal", "causal", "lm")
    model = found.model
    assert (model.direction, model.norm_place, model.activation) == ("causal", "pre", "gelu-tanh")
    assert (model.tied, model.ffn, model.context) == (True, 4 * 768, 1_024)


def test_matrices_are_turned_and_vectors_are_not():
    parts = {part.ours: part for part in Gpt2().parts(described(n_layer=1).model, described().head)}
    assert parts["base.stack.blocks.0.attention.qkv.weight"].theirs == ("h.0.attn.c_attn.weight",)
    assert parts["base.stack.blocks.0.attention.qkv.weight"].turned
    assert not parts["base.stack.blocks.0.attention_norm.weight"].turned


@pytest.mark.parametrize("field", ["scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"])
def test_another_attention_is_refused_by_name(field):
    with refused("unsupported", field):
        described(**{field: True})
