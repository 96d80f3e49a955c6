"""Labels in config.json, and a classifier's bias that the last norm takes up."""

import pytest
import torch
from expected_errors import refused

from headstart.interop.families.decoders import shift_for_bias
from headstart.interop.families.fields import Fields, sentence_head


def head_of(**content):
    return sentence_head(Fields(content, "config.json"), "first")


@pytest.mark.parametrize(
    ("content", "kind", "labels"),
    [
        ({"id2label": {"0": "neg", "1": "pos"}}, "classification", ("neg", "pos")),
        ({"id2label": {"1": "b", "0": "a", "2": "c"}}, "classification", ("a", "b", "c")),
        (
            {"id2label": {"0": "a", "1": "b"}, "problem_type": "multi_label_classification"},
            "multilabel",
            ("a", "b"),
        ),
        ({"id2label": {"0": "score"}}, "regression", ()),
        ({"num_labels": 3}, "classification", ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({}, "classification", ("LABEL_0", "LABEL_1")),
    ],
)
def test_labels_are_in_their_order(content, kind, labels):
    head, found = head_of(**content)
    assert (head.kind, found) == (kind, labels)
    assert head.classes == (len(labels) or 1)


@pytest.mark.parametrize(
    "content",
    [
        {"id2label": {"0": "a", "2": "b"}},
        {"id2label": {"0": "a", "1": "a"}},
        {"id2label": []},
        {"problem_type": "x"},
    ],
)
def test_labels_that_are_no_table_are_refused(content):
    with refused("unsupported" if "problem_type" in content else "bad-format", next(iter(content))):
        head_of(**content)


def test_what_shifts_the_vector_does_what_the_bias_did():
    matrix, bias = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]), torch.tensor([4.0, -5.0])
    shift = shift_for_bias({"head.classifier.weight": matrix, "head.classifier.bias": bias})
    assert torch.allclose(matrix.double() @ shift, bias.double())


def test_more_classes_than_numbers_leave_no_shift():
    matrix, bias = torch.tensor([[1.0], [1.0]]), torch.tensor([1.0, 2.0])
    assert shift_for_bias({"head.classifier.weight": matrix, "head.classifier.bias": bias}) is None
