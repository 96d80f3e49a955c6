"""What a study has to beat: the commonest class, and TF-IDF with logistic regression.

Whoever asks "should I pretrain?" has to know first whether an hour-old idea that runs in seconds does as well. So
TF-IDF gets what makes it strong: words and characters, damped counts, and a strength chosen on valid.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""C of the logistic regression: the larger, the closer it may follow the training rows."""

_LEAST_PROBABILITY = 1e-15


class BaselineResult(NamedTuple):
    """Predicted class numbers for test, and how the strength was chosen."""

    predictions: np.ndarray
    strength: float | None
    """None where there was nothing to choose: one class, or no text to learn from."""

    tries: list[tuple[float, float, float]]
    """(strength, accuracy on valid, log loss on valid)."""


def majority(train_labels: Sequence[int] | np.ndarray, test_count: int) -> np.ndarray:
    """The commonest class of train for every row of test; among equals the lowest class number."""
    return np.full(test_count, np.bincount(np.asarray(train_labels, dtype=np.int64)).argmax())


def tfidf(
    train_texts: Sequence[str],
    train_labels: Sequence[int] | np.ndarray,
    valid_texts: Sequence[str],
    valid_labels: Sequence[int] | np.ndarray,
    test_texts: Sequence[str],
    seed: int = 0,
) -> BaselineResult:
    """TF-IDF of words (1–2) and characters (2–5), logistic regression, its strength the best on valid.

    The best is the most accurate, among equals the one with the lowest log loss. Classes that a small budget's
    rows do not hold are never predicted, and cost their valid rows the full loss. The result is the same for
    every seed and any number of threads: nothing is drawn, and one thread adds up.
    """
    import sklearn.linear_model  # noqa: F401  # before the limit, which holds for what is loaded by then
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    train_labels, valid_labels = (
        np.asarray(labels, dtype=np.int64) for labels in (train_labels, valid_labels)
    )
    with threadpool_limits(1):
        features = _features(train_texts, valid_texts, test_texts)
        if features is None or len(np.unique(train_labels)) == 1:
            return BaselineResult(majority(train_labels, len(test_texts)), None, [])
        train, valid, test = features
        models = [_fitted(strength, train, train_labels, seed) for strength in STRENGTHS]
        tries = [
            (strength, *_on_valid(model, valid, valid_labels))
            for strength, model in zip(STRENGTHS, models, strict=True)
        ]
        best = min(range(len(tries)), key=lambda place: (-tries[place][1], tries[place][2]))
        return BaselineResult(models[best].predict(test), STRENGTHS[best], tries)


def _features(train_texts: Sequence[str], *others: Sequence[str]) -> list[Any] | None:
    """A sparse matrix for each set, learnt from train alone; None where train holds no word and no character."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    parts = []
    for vectorizer in (
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        TfidfVectorizer(analyzer="char", ngram_range=(2, 5), sublinear_tf=True),
    ):
        analyse = vectorizer.build_analyzer()
        if any(analyse(text) for text in train_texts):  # scikit-learn refuses an empty vocabulary
            train = vectorizer.fit_transform(train_texts)
            parts.append([train, *(vectorizer.transform(texts) for texts in others)])
    return [hstack(blocks, format="csr") for blocks in zip(*parts, strict=True)] if parts else None


def _fitted(strength: float, train: Any, labels: np.ndarray, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    # With scikit-learn's own tolerance of 1e-4 the fit stops so early that accuracy moves by half a point.
    model = LogisticRegression(C=strength, tol=1e-6, max_iter=10_000, random_state=seed % 2**32)
    return model.fit(train, labels)


def _on_valid(model: Any, valid: Any, labels: np.ndarray) -> tuple[float, float]:
    probabilities = model.predict_proba(valid)  # (rows, classes that train holds)
    accuracy = float((model.classes_[probabilities.argmax(axis=1)] == labels).mean())
    given = np.where(model.classes_ == labels[:, None], probabilities, 0).sum(axis=1)
    return accuracy, float(-np.log(np.maximum(given, _LEAST_PROBABILITY)).mean())
