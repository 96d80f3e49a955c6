"""Metrics, by hand."""

import numpy as np
import pytest

from headstart.inference.metrics import (
    calibration_error,
    classification_scores,
    multilabel_scores,
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
