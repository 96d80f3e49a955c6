"""DistilBERT's config.json in our words: the models come to the published number of parameters."""

import pytest

from headstart.interop.families.encoders import DistilBert
from headstart.interop.families.fields import Fields
from headstart.planning.parameters import total


def described(*names, **changes):
    fields = Fields({"vocab_size": 30_522, **changes}, "config.json")  # distilbert-base-uncased
    return DistilBert().described(fields, frozenset(names))


@pytest.mark.parametrize(
    ("architecture", "names", "objective", "parameters"),
    [
        ("DistilBertModel", [], "base", 66_362_880),
        ("DistilBertForMaskedLM", ["vocab_transform.weight"], "masked", 66_985_530),
        ("DistilBertForSequenceClassification", ["classifier.weight"], "classification", 66_955_010),
    ],
)
def test_it_has_the_published_parameters(architecture, names, objective, parameters):
    found = described(*names, architectures=[architecture])
    assert found.objective == objective
    assert total(found.model, found.head) == parameters


def test_it_is_half_of_bert_without_segments():
    model = described().model
    assert (model.depth, model.segments, model.pooler_activation) == (6, 0, "relu")
