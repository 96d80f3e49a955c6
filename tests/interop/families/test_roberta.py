"""RoBERTa's config.json in our words; two rows of its positions stand for no position."""

import pytest

from headstart.interop.families.encoders import Camembert, Roberta, XlmRoberta
from headstart.interop.families.fields import Fields
from headstart.planning.parameters import total

CONFIG = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3_072,
    "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1,
}  # fmt: skip


# roberta-base and camembert-base
@pytest.mark.parametrize(
    ("family", "vocab", "parameters"), [(Roberta(), 50_265, 124_697_433), (Camembert(), 32_005, 110_655_493)]
)
def test_it_has_the_published_parameters_but_for_two_positions(family, vocab, parameters):
    fields = Fields({**CONFIG, "vocab_size": vocab}, "config.json")
    found = family.described(fields, frozenset({"lm_head.dense.weight"}))
    assert (found.objective, found.model.context) == ("masked", 512)
    assert total(found.model, found.head) == parameters - 2 * 768


def test_each_is_known_by_its_model_type():
    families = (Roberta(), Camembert(), XlmRoberta())
    assert [family.model_type for family in families] == ["roberta", "camembert", "xlm-roberta"]
