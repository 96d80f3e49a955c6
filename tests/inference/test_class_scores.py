"""Scores by class and their intervals, against scikit-learn and numbers by hand."""

import numpy as np
import pytest
from sklearn import metrics as sk

from headstart.inference.class_scores import f1_of, matrix_metrics, report_of, wilson
from headstart.inference.metrics import classification_scores, multilabel_scores, regression_scores

RANDOM = np.random.default_rng(5)
LABELS = ["a", "b", "c", "never"]


def drawn(rows=300):
    """Probabilities and true classes; the last class is never true."""
    targets = RANDOM.choice(3, rows, p=[0.7, 0.2, 0.1])
    outputs = RANDOM.dirichlet(np.ones(4), rows)
    outputs[np.arange(rows), targets] += RANDOM.random(rows)
    return outputs / outputs.sum(axis=1, keepdims=True), targets


def test_wilsons_interval_is_that_of_the_textbook():
    # (p + z²/2n ± z·√(p(1 − p)/n + z²/4n²)) / (1 + z²/n) with p = 0.8, n = 10, z = 1.959964
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert wilson(0, 5) == pytest.approx((0.0, 0.434482), abs=1e-6)
    assert wilson(0, 0) == (0.0, 1.0)


def test_classes_and_confusion_are_scikit_learns():
    outputs, targets = drawn()
    predicted = outputs.argmax(axis=1)
    found = report_of("classification", outputs, targets, LABELS)
    assert found.confusion == sk.confusion_matrix(targets, predicted, labels=range(4)).tolist()
    precision, recall, f1, rows = sk.precision_recall_fscore_support(
        targets, predicted, labels=range(4), zero_division=0
    )
    assert [one.precision for one in found.classes] == pytest.approx(precision)
    assert [one.recall for one in found.classes] == pytest.approx(recall)
    assert [one.f1 for one in found.classes] == pytest.approx(f1)
    assert [one.rows for one in found.classes] == rows.tolist()
    assert [one.label for one in found.classes] == LABELS
    assert found.classes[0].recall_interval == wilson(round(recall[0] * rows[0]), int(rows[0]))


def test_metrics_of_a_matrix_are_those_of_its_rows():
    for _ in range(20):
        outputs, targets = drawn(40)
        confusion = np.array(report_of("classification", outputs, targets, LABELS).confusion)
        counts = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
        expected = classification_scores(outputs, targets)
        assert matrix_metrics(*counts) == pytest.approx({name: expected[name] for name in matrix_metrics(*counts)})
    assert f1_of(np.array([0]), np.array([0]), np.array([0])).tolist() == [0]


def test_an_interval_holds_its_score_and_narrows_with_more_rows():
    widths = []
    for rows in (100, 2_500):
        outputs, targets = drawn(rows)
        scores, found = classification_scores(outputs, targets), report_of("classification", outputs, targets, LABELS)
        assert set(found.intervals) == {"accuracy", "macro_f1", "balanced_accuracy", "mcc"}
        assert all(low < scores[name] < high for name, (low, high) in found.intervals.items())
        low, high = found.intervals["macro_f1"]
        widths.append(high - low)
        assert found == report_of("classification", outputs, targets, LABELS), "the same rows, the same interval"
    assert widths[1] == pytest.approx(widths[0] / 5, rel=0.35)


def test_the_bootstrap_over_cells_is_that_over_rows():
    """The percentiles of macro-F1 over rows that are drawn again, here by scikit-learn, one draw after the other."""
    outputs, targets = drawn(60)
    predicted, random = outputs.argmax(axis=1), np.random.default_rng(0)
    values = []
    for _ in range(400):
        rows = random.integers(60, size=60)
        seen = np.unique([*targets[rows], *predicted[rows]])
        values.append(sk.f1_score(targets[rows], predicted[rows], labels=seen, average="macro", zero_division=0))
    found = report_of("classification", outputs, targets, LABELS).intervals["macro_f1"]
    assert found == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.03)


def test_several_labels():
    targets = (RANDOM.random((200, 3)) < 0.4).astype(float)
    outputs = np.clip(targets * 0.4 + RANDOM.random((200, 3)) * 0.7, 0, 1)
    found, scores = report_of("multilabel", outputs, targets, LABELS[:3]), multilabel_scores(outputs, targets)
    assert all(found.intervals[name][0] < scores[name] < found.intervals[name][1] for name in scores)
    f1 = sk.f1_score(targets, outputs > 0.5, average=None, zero_division=0)
    assert [one.f1 for one in found.classes] == pytest.approx(f1)
    assert all(one.f1_interval[0] <= one.f1 <= one.f1_interval[1] for one in found.classes)
    assert found.confusion == []


def test_values():
    targets = RANDOM.normal(size=500)
    outputs = (targets + RANDOM.normal(size=500))[:, None]
    found, scores = report_of("regression", outputs, targets, []), regression_scores(outputs, targets)
    assert set(found.intervals) == {"rmse", "mae"}
    assert all(low < scores[name] < high for name, (low, high) in found.intervals.items())
    # The mean absolute error is a mean: its interval is about 1.96 standard errors to each side.
    low, high = found.intervals["mae"]
    errors = np.abs(outputs[:, 0] - targets)
    assert high - low == pytest.approx(2 * 1.96 * errors.std() / np.sqrt(500), rel=0.15)
