"""GPT-NeoX's config.json in our words, where its sublayers follow each other."""

import pytest
import torch
from expected_errors import refused

from headstart.interop.families.decoders import GptNeoX
from headstart.interop.families.fields import Fields
from headstart.model.model import Model
from headstart.planning.parameters import total

# The shape of pythia-70m.
CONFIG = {
    "vocab_size": 50_304, "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
    "intermediate_size": 2_048, "rotary_pct": 1.0, "use_parallel_residual": False,
}  # fmt: skip


def described(**changes):
    fields = Fields({**CONFIG, **changes}, "config.json")
    return GptNeoX().described(fields, frozenset({"embed_out.weight"}))


def test_it_has_the_published_parameters():
    found = described()
    assert total(found.model, found.head) == 70_426_624
    assert (found.model.positions, found.model.rotary_base, found.model.tied) == ("rotary", 10_000, False)


@pytest.mark.parametrize("change", [{"use_parallel_residual": True}, {"rotary_pct": 0.25}, {"attention_bias": False}])
def test_what_we_cannot_compute_is_refused_by_name(change):
    with refused("unsupported", next(iter(change))):
        described(**change)


def test_queries_keys_and_values_of_a_head_stand_together_there():
    """Their rows go head by head (query, key, value of the first, then of the second); ours kind by kind."""
    small = {
        "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 3,
    }  # fmt: skip
    family, found = GptNeoX(), described(**small)
    shapes = {name: tensor.shape for name, tensor in Model(found.model, found.head).named_parameters()}
    parts = list(family.parts(found.model, found.head))
    theirs = {part.theirs[0]: torch.zeros(shapes[part.ours]) for part in parts}
    theirs["layers.0.attention.query_key_value.bias"] = torch.arange(12.0)
    ours = family.tensors_in(found, theirs)
    assert ours["base.stack.blocks.0.attention.qkv.bias"].tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]
