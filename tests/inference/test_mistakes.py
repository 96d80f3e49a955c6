"""Which answers are wrong, and which of them the run was surest of."""

import numpy as np

from headstart.data.labelled import LabelledSet
from headstart.inference.mistakes import mistakes_in


def labelled(task, labels, texts_b=None):
    texts = [f"text {number}" for number in range(len(labels))]
    return LabelledSet("t.csv", task, texts, labels, [f"t.csv:{n + 2}" for n in range(len(labels))], texts_b)


def test_the_surest_wrong_answer_comes_first():
    outputs = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]])
    found = mistakes_in(labelled("classification", ["oui", "non", "non", "non"]), outputs, ["non", "oui"])
    assert [(one.where, one.label, one.predicted, one.confidence) for one in found] == [
        ("t.csv:2", "oui", "non", 0.9), ("t.csv:4", "non", "oui", 0.8), ("t.csv:3", "non", "oui", 0.6),
    ]  # fmt: skip
    assert found[0].probabilities == {"non": 0.9, "oui": 0.1}
    row = found[0].as_row()
    assert (row["text"], row["p_oui"]) == ("text 0", 0.1)
    assert "text_b" not in row


def test_of_several_labels_one_wrong_one_is_a_mistake():
    outputs = np.array([[0.9, 0.1], [0.9, 0.8], [0.1, 0.2]])
    found = mistakes_in(labelled("multilabel", [("a",), ("a",), ("b",)]), outputs, ["a", "b"])
    assert [(one.predicted, one.confidence) for one in found] == [(("a", "b"), 0.8), ((), 0.8)]


def test_of_numbers_the_largest_error_comes_first_and_pairs_keep_both_texts():
    rows = labelled("regression", [1.0, 2.0, 3.0], ["b0", "b1", "b2"])
    found = mistakes_in(rows, np.array([[1.0], [4.5], [2.0]]), [])
    assert [(one.label, one.predicted, one.confidence) for one in found] == [(2.0, 4.5, 2.5), (3.0, 2.0, 1.0)]
    assert found[0].as_row()["text_b"] == "b1"
