"""Scores of each class, the confusion matrix, and 95 % intervals: Wilson's for shares, the bootstrap's for the rest.

The bootstrap draws rows again with replacement. What it needs of a draw are counts: of each cell of the confusion
matrix, or of the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from headstart.inference.metrics import BOOTSTRAP_SEED, CONFIDENCE, RESAMPLES

Bounds = tuple[float, float]


class ClassScore(NamedTuple):
    """How well one label is predicted; a share of nothing is 0, and its interval all of 0 to 1."""

    label: str
    rows: int  # that have it
    predicted: int  # that are said to have it
    precision: float
    recall: float
    f1: float
    precision_interval: Bounds
    recall_interval: Bounds
    f1_interval: Bounds


@dataclass(frozen=True)
class LabelReport:
    """What is behind the metrics of a labelled set."""

    intervals: dict[str, Bounds]  # by metric
    classes: list[ClassScore] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)  # a row for each true class, a column for each predicted


def wilson(successes: int, count: int) -> Bounds:
    """Wilson's interval of a share."""
    from scipy.stats import binomtest

    if not count:
        return 0.0, 1.0
    low, high = binomtest(successes, count).proportion_ci(CONFIDENCE, method="wilson")
    return float(low), float(high)


def report_of(objective: str, outputs: np.ndarray, targets: np.ndarray, labels: Sequence[str]) -> LabelReport:
    """Of probabilities or values, for each task."""
    if objective == "classification":
        return _of_classes(outputs.argmax(axis=1), targets, labels)
    if objective == "multilabel":
        return _of_several_labels((outputs > 0.5).astype(int), targets.astype(int), labels)
    return LabelReport(_of_values(outputs.reshape(-1).astype(float), targets.reshape(-1).astype(float)))


def _of_classes(predicted: np.ndarray, targets: np.ndarray, labels: Sequence[str]) -> LabelReport:
    count, size = len(targets), len(labels)
    confusion = np.zeros((size, size), int)
    np.add.at(confusion, (targets, predicted), 1)
    rows, columns = np.nonzero(confusion)

    def scores(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Hits, rows and predictions of each class, from the counts of the cells that are not empty."""
        hits = np.bincount(rows, cells * (rows == columns), minlength=size)
        return hits, np.bincount(rows, cells, minlength=size), np.bincount(columns, cells, minlength=size)

    random = np.random.default_rng(BOOTSTRAP_SEED)
    draws = (random.multinomial(count, confusion[rows, columns] / count) for _ in range(RESAMPLES))
    intervals, f1 = _intervals(draws, lambda cells: (matrix_metrics(*scores(cells)), f1_of(*scores(cells))))
    right = int(np.trace(confusion))
    return LabelReport(
        {"accuracy": wilson(right, count), **intervals},
        _class_scores(labels, *scores(confusion[rows, columns]), f1),
        confusion.tolist(),
    )


def matrix_metrics(hits: np.ndarray, rows: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Macro-F1, balanced accuracy and MCC from the hits, rows and predictions of each class."""
    is_present, is_true = rows + predicted > 0, rows > 0
    count = rows.sum()
    spread = (count**2 - (rows**2).sum()) * (count**2 - (predicted**2).sum())
    covariance = hits.sum() * count - (rows * predicted).sum()
    return {
        "macro_f1": float(f1_of(hits, rows, predicted)[is_present].mean()),
        "balanced_accuracy": float((hits[is_true] / rows[is_true]).mean()),
        "mcc": float(covariance / np.sqrt(spread)) if spread else 0.0,
    }


def f1_of(hits: np.ndarray, rows: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return np.asarray(2 * hits / np.maximum(rows + predicted, 1))


def _of_several_labels(predicted: np.ndarray, targets: np.ndarray, labels: Sequence[str]) -> LabelReport:
    count, both = len(targets), predicted * targets

    def metrics(weights: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
        counts = weights @ both, weights @ targets, weights @ predicted
        each = f1_of(*counts)
        whole = f1_of(*(np.array([one.sum()]) for one in counts))
        return {"micro_f1": float(whole[0]), "macro_f1": float(each.mean())}, each

    intervals, f1 = _intervals(_row_counts(count), metrics)
    right = int((predicted == targets).all(axis=1).sum())
    classes = _class_scores(labels, both.sum(axis=0), targets.sum(axis=0), predicted.sum(axis=0), f1)
    return LabelReport({"accuracy": wilson(right, count), **intervals}, classes)


def _of_values(values: np.ndarray, targets: np.ndarray) -> dict[str, Bounds]:
    errors = values - targets

    def metrics(weights: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
        shares = weights / weights.sum()
        return {"rmse": float(np.sqrt(shares @ errors**2)), "mae": float(shares @ np.abs(errors))}, np.zeros(0)

    return _intervals(_row_counts(len(targets)), metrics)[0]


def _row_counts(count: int) -> Iterator[np.ndarray]:
    """How often each row comes, in every resample."""
    random = np.random.default_rng(BOOTSTRAP_SEED)
    return (np.bincount(random.integers(count, size=count), minlength=count) for _ in range(RESAMPLES))


def _intervals(
    draws: Iterator[np.ndarray], metrics: Callable[[np.ndarray], tuple[dict[str, float], np.ndarray]]
) -> tuple[dict[str, Bounds], np.ndarray]:
    """The percentile intervals of named metrics, and of F1 by class (2, classes), over the resamples."""
    found, each = zip(*map(metrics, draws), strict=True)
    ends = [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2]
    named = {name: np.quantile([one[name] for one in found], ends).tolist() for name in found[0]}
    return {name: (low, high) for name, (low, high) in named.items()}, np.quantile(np.array(each), ends, axis=0)


def _class_scores(
    labels: Sequence[str], hits: np.ndarray, rows: np.ndarray, predicted: np.ndarray, f1: np.ndarray
) -> list[ClassScore]:
    counts = zip(
        labels, hits.astype(int).tolist(), rows.astype(int).tolist(), predicted.astype(int).tolist(), strict=True
    )
    return [
        ClassScore(
            label, true, said, hit / max(said, 1), hit / max(true, 1), 2 * hit / max(true + said, 1),
            wilson(hit, said), wilson(hit, true), (float(f1[0, number]), float(f1[1, number])),
        )
        for number, (label, hit, true, said) in enumerate(counts)
    ]  # fmt: skip
