"""What predictions are worth: the field's own measures, from scikit-learn."""

from typing import Any

import numpy as np

CALIBRATION_BINS = 15


def classification_scores(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Accuracy, macro-F1, balanced accuracy, MCC, the majority's accuracy, calibration error: as fractions."""
    from sklearn.metrics import balanced_accuracy_score, f1_score, matthews_corrcoef

    predicted = probabilities.argmax(axis=1)
    present = np.unique(np.concatenate([targets, predicted]))
    return {
        "accuracy": float((predicted == targets).mean()),
        "macro_f1": float(f1_score(targets, predicted, labels=present, average="macro", zero_division=0)),
        "balanced_accuracy": float(balanced_accuracy_score(targets, predicted)) if len(np.unique(targets)) > 1
        else float((predicted == targets).mean()),
        "mcc": float(matthews_corrcoef(targets, predicted)),
        "majority_accuracy": float(np.bincount(targets).max() / len(targets)),
        "calibration_error": calibration_error(probabilities, targets),
    }  # fmt: skip


def calibration_error(probabilities: np.ndarray, targets: np.ndarray) -> float:
    """How far confidence is from accuracy, on average over bins of equal width (ECE)."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == targets
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = [
        abs(confidence[bins == b].mean() - right[bins == b].mean()) * (bins == b).sum()
        for b in np.unique(bins)
    ]
    return float(sum(gaps) / len(targets))


def multilabel_scores(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Exact matches, and F1 over all decisions and over the labels' means."""
    from sklearn.metrics import f1_score

    predicted = (probabilities > 0.5).astype(int)
    return {
        "accuracy": float((predicted == targets).all(axis=1).mean()),
        "micro_f1": float(f1_score(targets, predicted, average="micro", zero_division=0)),
        "macro_f1": float(f1_score(targets, predicted, average="macro", zero_division=0)),
    }


def regression_scores(values: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Root mean squared error, mean absolute error, and both correlations."""
    from scipy.stats import pearsonr, spearmanr

    errors = values.reshape(-1) - targets.reshape(-1)
    varied = len(targets) > 1 and np.ptp(values) > 0 and np.ptp(targets) > 0
    return {
        "rmse": float(np.sqrt((errors**2).mean())),
        "mae": float(np.abs(errors).mean()),
        "pearson": float(pearsonr(values.reshape(-1), targets.reshape(-1)).statistic) if varied else 0.0,
        "spearman": float(spearmanr(values.reshape(-1), targets.reshape(-1)).statistic) if varied else 0.0,
    }


SCORES: dict[str, Any] = {
    "classification": classification_scores,
    "multilabel": multilabel_scores,
    "regression": regression_scores,
}
