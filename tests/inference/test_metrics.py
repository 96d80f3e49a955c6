"""Metrics, by hand."""

import warnings

import numpy as np
import pytest
import small
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from sklearn.metrics import balanced_accuracy_score

from headstart.inference.metrics import (
    bleu_and_chrf,
    calibration_error,
    classification_scores,
    multilabel_scores,
    paired_bootstrap,
    regression_scores,
)


def test_scores_of_classes():
    # Two of three right; class 0 has precision 1/2 and recall 1, class 1 precision 1 and recall 1/2.
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    found = classification_scores(probabilities, np.array([0, 1, 1]))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["macro_f1"] == pytest.approx(2 / 3)
    assert found["balanced_accuracy"] == pytest.approx(0.75)
    assert found["majority_accuracy"] == pytest.approx(2 / 3)
    assert found["mcc"] == pytest.approx(0.5)


def test_one_class_alone_has_scores():
    found = classification_scores(np.array([[0.9, 0.1]] * 3), np.zeros(3, np.int64))
    assert (found["accuracy"], found["balanced_accuracy"], found["mcc"]) == (1.0, 1.0, 0.0)


def test_calibration_is_confidence_against_accuracy_in_each_bin():
    # One bin of 0.9, right half of the time; one of 0.6, always right.
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    assert calibration_error(probabilities, np.array([0, 1, 1, 1])) == pytest.approx((0.4 * 2 + 0.4 * 2) / 4)


def test_scores_of_several_labels():
    # True positives 2, false positives 1, false negatives 1: micro-F1 is 4/6.
    found = multilabel_scores(np.array([[0.9, 0.6], [0.2, 0.8]]), np.array([[1, 0], [1, 1]]))
    assert found["accuracy"] == 0.0
    assert found["micro_f1"] == pytest.approx(2 / 3)
    assert found["macro_f1"] == pytest.approx(2 / 3)


def test_scores_of_numbers():
    found = regression_scores(np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 3.0, 5.0]))
    assert found["rmse"] == pytest.approx((2 / 3) ** 0.5)
    assert found["mae"] == pytest.approx(2 / 3)
    assert found["spearman"] == pytest.approx(1.0)
    assert found["pearson"] == pytest.approx(np.corrcoef([1, 2, 4], [1, 3, 5])[0, 1])
    assert regression_scores(np.ones((2, 1)), np.array([1.0, 2.0]))["pearson"] == 0.0


def test_the_paired_bootstrap_is_sacrebleus_with_the_interval_of_the_difference():
    references = [text.removesuffix(".") for text in small.sentences(60, seed=2)]
    random = np.random.default_rng(1)

    def spoiled(share):
        return [" ".join(w if random.random() > share else "x" for w in text.split()) for text in references]

    first, second = spoiled(0.4), spoiled(0.2)
    metrics = {"bleu": BLEU(), "chrf": CHRF()}
    signatures, expected = PairedTest([("a", first), ("b", second)], metrics, [references], "bs")()
    found = paired_bootstrap(first, second, references)
    for name, theirs in (("bleu", "BLEU"), ("chrf", "chrF2")):
        one, other = expected[theirs]
        assert found[name].scores == pytest.approx((one.score, other.score))
        assert found[name].p == pytest.approx(other.p_value)
        assert found[name].signature == str(signatures[theirs])
        assert 0 < found[name].low < found[name].scores[1] - found[name].scores[0] < found[name].high < 100
    assert found["bleu"].scores == (
        bleu_and_chrf(first, references).values["bleu"], pytest.approx(bleu_and_chrf(second, references).values["bleu"])
    )  # fmt: skip
    (low, high) = found["bleu"][1:3]
    turned = paired_bootstrap(second, first, references)["bleu"]
    assert (turned.low, turned.high) == pytest.approx((-high, -low))


def test_balanced_accuracy_is_scikit_learns_also_where_a_class_is_only_predicted():
    targets, predicted = np.array([0, 0, 1, 1, 1]), np.array([0, 2, 1, 1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = balanced_accuracy_score(targets, predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = classification_scores(np.eye(3)[predicted], targets)
    assert found["balanced_accuracy"] == pytest.approx(expected)
