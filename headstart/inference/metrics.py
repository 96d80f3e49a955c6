"""Metrics by scikit-learn, SciPy and sacreBLEU: of classification, several labels, regression and translation."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

CALIBRATION_BINS = 15
CONFIDENCE = 0.95  # of every interval


def classification_scores(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Accuracy, macro-F1, balanced accuracy, MCC, majority accuracy, calibration error: as fractions."""
    from sklearn.metrics import matthews_corrcoef, recall_score

    predicted = probabilities.argmax(axis=1)
    recall = recall_score(targets, predicted, labels=np.unique(targets), average="macro", zero_division=0)
    return {
        "accuracy": float((predicted == targets).mean()),
        "macro_f1": macro_f1(predicted, targets),
        "balanced_accuracy": float(recall),
        "mcc": float(matthews_corrcoef(targets, predicted)),
        "majority_accuracy": float(np.bincount(targets).max() / len(targets)),
        "calibration_error": calibration_error(probabilities, targets),
    }


def macro_f1(predicted: np.ndarray, targets: np.ndarray) -> float:
    """The mean F1 of the classes that are true or predicted somewhere."""
    from sklearn.metrics import f1_score

    present = np.unique(np.concatenate([targets, predicted]))
    return float(f1_score(targets, predicted, labels=present, average="macro", zero_division=0))


def calibration_error(probabilities: np.ndarray, targets: np.ndarray) -> float:
    """Expected calibration error: |confidence − accuracy|, averaged over bins of equal width."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == targets
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    inside = [bins == number for number in np.unique(bins)]
    return float(sum(abs(confidence[b].mean() - right[b].mean()) * b.sum() for b in inside) / len(targets))


def multilabel_scores(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Exact-match accuracy, micro-F1 and macro-F1."""
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

    values, targets = values.reshape(-1), targets.reshape(-1)
    errors, varied = values - targets, len(targets) > 1 and np.ptp(values) > 0 and np.ptp(targets) > 0
    return {
        "rmse": float(np.sqrt((errors**2).mean())),
        "mae": float(np.abs(errors).mean()),
        "pearson": float(pearsonr(values, targets).statistic) if varied else 0.0,
        "spearman": float(spearmanr(values, targets).statistic) if varied else 0.0,
    }


SCORES: dict[str, Any] = {
    "classification": classification_scores,
    "multilabel": multilabel_scores,
    "regression": regression_scores,
}


class TranslationScores(NamedTuple):
    """Scores from 0 to 100 over cased, untokenised texts, each with sacreBLEU's signature."""

    values: dict[str, float]
    signatures: dict[str, str]


def bleu_and_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """Corpus BLEU and chrF, with one reference for each text."""
    values, signatures = {}, {}
    for name, metric in _sacrebleu().items():
        values[name] = float(metric.corpus_score(list(hypotheses), [list(references)]).score)
        signatures[name] = str(metric.get_signature())
    return TranslationScores(values, signatures)


class Bootstrap(NamedTuple):
    """A score of two systems on the same texts, from 0 to 100; and the difference, second minus first."""

    scores: tuple[float, float]
    low: float
    high: float
    p: float  # as sacreBLEU's paired bootstrap has it; 1 where there is no difference, which sacreBLEU calls certain
    signature: str


RESAMPLES, BOOTSTRAP_SEED = 1_000, 12_345  # sacreBLEU's own


def paired_bootstrap(first: Sequence[str], second: Sequence[str], references: Sequence[str]) -> dict[str, Bootstrap]:
    """BLEU and chrF of two systems, over sacreBLEU's resamples of the texts and from its counts for each text."""
    found, systems = {}, [list(first), list(second)]
    for name, metric in _sacrebleu().items():
        counts = [np.array(metric._extract_corpus_statistics(texts, [list(references)]), float) for texts in systems]
        one, other = (metric._compute_score_from_stats(each.sum(axis=0)).score for each in counts)
        random = np.random.default_rng(BOOTSTRAP_SEED)
        differences = np.zeros(RESAMPLES)
        for number in range(RESAMPLES):
            rows = random.choice(len(references), size=len(references))
            drawn = [metric._compute_score_from_stats(each[rows].sum(axis=0)).score for each in counts]
            differences[number] = drawn[1] - drawn[0]
        low, high = np.quantile(differences, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2]).tolist()
        sizes = np.abs(differences)
        larger = int((sizes - sizes.mean() > abs(other - one)).sum())
        p = (larger + 1) / (RESAMPLES + 1) if one != other else 1.0
        signature = metric.get_signature()
        signature.update("seed", str(BOOTSTRAP_SEED))
        signature.update("bs", RESAMPLES)
        found[name] = Bootstrap((float(one), float(other)), low, high, p, str(signature))
    return found


def _sacrebleu() -> dict[str, Any]:
    from sacrebleu.metrics import BLEU, CHRF

    return {"bleu": BLEU(), "chrf": CHRF()}
