"""BERT's config.json in our words: the models come to the published number of parameters."""

import pytest
from expected_errors import refused

from headstart.interop.families.encoders import Bert
from headstart.interop.families.fields import Fields
from headstart.planning.parameters import total

# bert-base-uncased
CONFIG = {
    "vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3_072,
}  # fmt: skip
MASKED, POOLER = "cls.predictions.transform.dense.weight", "pooler.dense.weight"


def described(*names, **changes):
    return Bert().described(Fields({**CONFIG, **changes}, "config.json"), frozenset(names))


@pytest.mark.parametrize(
    ("architecture", "names", "objective", "parameters"),
    [
        ("BertModel", [POOLER], "base", 109_482_240),
        ("BertForMaskedLM", [MASKED], "masked", 109_514_298),
        ("BertForPreTraining", [MASKED, POOLER, "cls.seq_relationship.weight"], "masked-nsp", 110_106_428),
        ("BertForSequenceClassification", [POOLER, "classifier.weight"], "classification", 109_483_778),
    ],
)
def test_it_has_the_published_parameters(architecture, names, objective, parameters):
    found = described(*names, architectures=[architecture])
    assert found.objective == objective
    assert total(found.model, found.head) == parameters


def test_it_reads_both_ways_normalises_last_and_ties_its_output():
    model = described(MASKED).model
    assert (model.direction, model.norm_place, model.positions) == ("bidirectional", "post", "learned")
    assert (model.tied, model.segments, model.norm_epsilon) == (True, 2, 1e-12)


@pytest.mark.parametrize(
    "change",
    [{"hidden_act": "sigmoid"}, {"position_embedding_type": "relative_key"}, {"architectures": ["BertFor"]}],
)
def test_what_we_cannot_compute_is_refused_by_name(change):
    with refused("unsupported", next(iter(change))):
        described(MASKED, **change)
