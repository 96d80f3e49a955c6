"""What a study has to beat: the majority class, TF-IDF and LSA with logistic regression; and mixes of arms.

They take seconds, so they get what makes them strong: words and characters, sublinear counts, a C chosen on valid.
LSA, a truncated SVD of what occurs near what, is the cheap use of the text that a base is pretrained on. Nothing here
depends on a seed or on the number of threads: nothing is drawn but by a fixed seed, and one thread adds up.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from headstart.config.study import Metric
from headstart.data.cooccurrence import vectors_of
from headstart.inference.metrics import macro_f1
from headstart.randomness import stream
from headstart.runs.linear import LEAST_PROBABILITY, UNITS, mixed
from headstart.tokenizers.ngrams import Ngrams

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""C of the logistic regression: the larger, the closer it may follow the training rows."""

SMALL_VALID = 500  # rows of valid below which exponents that are the best on all of them fit their noise
MOST_EXPONENT = 10.0
_COMPONENTS = {"words": 256, "characters": 128}
_MIN_DF = {"words": 10, "characters": 50}  # stretches, in large corpora
_STRETCH = 350  # characters
LONGEST_WORDS = 20  # characters from space to space on average; more are text whose words stand without spaces
Labels = Sequence[int] | np.ndarray


class Choosing(NamedTuple):
    """By what to choose on valid, and what the classes count for in training."""

    metric: Metric = "accuracy"
    class_weights: Literal["none", "balanced"] = "none"


BY_ACCURACY = Choosing()


class BaselineResult(NamedTuple):
    """Probabilities (rows, classes) on valid and test, and how the strength, or the weight of a mix, was chosen."""

    valid: np.ndarray
    test: np.ndarray
    chosen: float | None  # None where there was nothing to choose: one class, or no text to learn from
    tries: list[tuple[float, float, float]]  # (strength or weight, the metric on valid, log loss on valid)
    arrays: Mapping[str, np.ndarray] = MappingProxyType(
        {}
    )  # of a logistic regression: what runs/linear.py predicts with

    @property
    def predictions(self) -> np.ndarray:
        """The class numbers for test; of several that are equally likely the lowest."""
        return self.test.argmax(axis=1)


def majority(train_labels: Labels, valid_count: int, test_count: int, classes: int) -> BaselineResult:
    """The share of each class in train for every row, whose largest is the majority class."""
    shares = np.bincount(np.asarray(train_labels, dtype=np.int64), minlength=classes) / len(train_labels)
    seen = np.flatnonzero(shares)
    arrays = {"intercepts": np.log(shares[seen]), "coefficients": np.zeros((0, len(seen))), "classes": seen}
    return BaselineResult(np.tile(shares, (valid_count, 1)), np.tile(shares, (test_count, 1)), None, [], arrays)


def tfidf(
    train_texts: Sequence[str], train_labels: Labels, valid_texts: Sequence[str], valid_labels: Labels,
    test_texts: Sequence[str], classes: int, how: Choosing = BY_ACCURACY,
) -> BaselineResult:  # fmt: skip
    """TF-IDF of words (1–2) and characters (2–5), learnt from train, and logistic regression."""
    from scipy.sparse import hstack

    parts, learnt = [], dict[str, np.ndarray]()
    for unit, lengths in UNITS.items():
        ngrams = Ngrams(unit, *lengths)
        counts = [ngrams.fit_transform(train_texts), *map(ngrams.transform, (valid_texts, test_texts))]
        if counts[0].shape[1]:
            weigh = _weights(counts[0])
            parts.append([weigh.transform(table, copy=False) for table in counts])
            learnt |= _named(unit, idf=weigh.idf_, **ngrams.arrays())
    if not parts:
        return majority(train_labels, len(valid_texts), len(test_texts), classes)
    whole = [hstack(blocks, format="csr") for blocks in zip(*parts, strict=True)]
    turn = _onto_fewer_columns(whole[0])
    train, valid, test = (table @ turn for table in whole)
    result = logistic_regression(train, valid, test, train_labels, valid_labels, classes, how)
    if result.chosen is None:
        return result
    coefficients = turn @ result.arrays["coefficients"]
    return result._replace(arrays={**result.arrays, **learnt, "coefficients": coefficients})


def _named(unit: str, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    return {f"{unit} {name}": array for name, array in arrays.items()}


def logistic_regression(
    train: Any, valid: Any, test: Any, train_labels: Labels, valid_labels: Labels, classes: int,
    how: Choosing = BY_ACCURACY,
) -> BaselineResult:  # fmt: skip
    """Logistic regression on features, its strength the best on valid, among equals of the lowest log loss.

    Classes that a small budget's rows do not hold are never predicted, and cost their valid rows the full loss.
    """
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    train_labels, valid_labels = (np.asarray(n, dtype=np.int64) for n in (train_labels, valid_labels))
    if not train.shape[1] or len(np.unique(train_labels)) == 1:
        return majority(train_labels, valid.shape[0], test.shape[0], classes)
    # Each strength goes on from the one before. With scikit-learn's own tolerance of 1e-4 the fit stops so early
    # that accuracy moves by half a point; with this one it is as near to the optimum as a fit from zero with 1e-6.
    weights = None if how.class_weights == "none" else how.class_weights
    model = LogisticRegression(tol=3e-7, max_iter=10_000, warm_start=True, class_weight=weights)
    results: list[BaselineResult] = []
    tries: list[tuple[float, float, float]] = []
    with threadpool_limits(1):
        for strength in STRENGTHS:
            model.set_params(C=strength).fit(train, train_labels)
            tables = [np.zeros((rows.shape[0], classes)) for rows in (valid, test)]
            for table, rows in zip(tables, (valid, test), strict=True):
                table[:, model.classes_] = model.predict_proba(rows)
            arrays = {
                "coefficients": model.coef_.T,
                "intercepts": model.intercept_,
                "classes": model.classes_,
            }
            copies = {name: np.array(array) for name, array in arrays.items()}  # the next fit goes on in them
            results.append(BaselineResult(tables[0], tables[1], strength, tries, copies))
            tries.append((strength, *scores(tables[0], valid_labels, how.metric)))
    return results[min(range(len(tries)), key=lambda index: (-tries[index][1], tries[index][2]))]


def scores(probabilities: np.ndarray, labels: np.ndarray, metric: Metric = "accuracy") -> tuple[float, float]:
    """Accuracy, or macro-F1, and log loss."""
    predicted = probabilities.argmax(axis=1)
    score = macro_f1(predicted, labels) if metric == "macro_f1" else float((predicted == labels).mean())
    return score, float(_losses(probabilities, labels).mean())


def _losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    given = probabilities[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(given, LEAST_PROBABILITY)))


def _weights(counts: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer(sublinear_tf=True).fit(counts)


def _onto_fewer_columns(train: Any) -> Any:
    """A matrix that makes of the columns of one training row alone a single one: the same regression on half of them.

    Such columns are multiples of each other, so the weights that fit best with an L2 penalty are in the proportion
    of their values. Turned by that proportion, the others are zero: the predictions are the same.
    """
    from scipy.sparse import csr_matrix

    rows, columns = train.shape
    squares = np.bincount(train.indices, train.data**2, minlength=columns)
    is_rare = np.bincount(train.indices, minlength=columns) == 1
    row = csr_matrix((np.ones(train.nnz), train.indices, train.indptr), train.shape).T @ np.arange(rows)
    _, group = np.unique(np.where(is_rare, row, rows + np.arange(columns)), return_inverse=True)
    share = np.sqrt(squares / np.bincount(group, squares)[group])
    return csr_matrix((share, group, np.arange(columns + 1)), shape=(columns, group.max() + 1))


# ---- LSA ------------------------------------------------------------------------------------------------------


def fit_lsa(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Vectors of words (1–2) and of characters (2–5), as arrays that runs/linear.py takes.

    Where no spaces tell words apart, characters are all there is.
    """
    stretches = [text[start : start + _STRETCH] for text in texts for start in range(0, len(text), _STRETCH)]
    has_words = sum(map(len, texts)) < LONGEST_WORDS * sum(len(text.split()) for text in texts)
    arrays: dict[str, np.ndarray] = {}
    for unit, lengths in UNITS.items():
        if unit == "words" and not has_words:
            continue
        ngrams = Ngrams(unit, *lengths)
        counts = ngrams.fit_transform(stretches, min_df=min(_MIN_DF[unit], 1 + len(stretches) // 1000))
        if not counts.shape[1]:
            continue
        vectors = vectors_of([counts.astype(np.float32)].__iter__, _COMPONENTS[unit])
        # In fp16 the accuracy is the same to 0.01 points, and the file half as large.
        axes = vectors.T.astype(np.float16)
        arrays |= _named(unit, idf=_weights(counts).idf_, axes=axes, **ngrams.arrays())
    return arrays


# ---- several arms as one ----------------------------------------------------------------------------------------


def mix(parts: Sequence[BaselineResult], valid_labels: Labels, metric: Metric = "accuracy") -> BaselineResult:
    """A log-linear mix of arms, whose exponents have the lowest log loss on valid.

    Where macro-F1 is what counts, every class has the same part in that loss, however rare it is.

    Exponents calibrate too: of a network that is too sure, a mean of the probabilities would be little more than its
    own. `chosen` is the last one's share of them. On a small valid they are the mean of those that are best on its
    halves, cut in ten ways, and its scores are those of each half with the exponents of the other.
    """
    from scipy.optimize import minimize

    labels, every = np.asarray(valid_labels, dtype=np.int64), np.arange(len(valid_labels))

    def score(exponents: np.ndarray, rows: np.ndarray = every) -> tuple[float, float]:
        return scores(mixed([part.valid[rows] for part in parts], exponents), labels[rows], metric)

    def best(rows: np.ndarray) -> np.ndarray:
        _, classes, counts = np.unique(labels[rows], return_inverse=True, return_counts=True)
        weights = 1 / counts[classes] if metric == "macro_f1" else None

        def cost(tried: np.ndarray) -> float:
            losses = _losses(mixed([part.valid[rows] for part in parts], tried), labels[rows])
            # The penalty of C = 1.
            return float(np.average(losses, weights=weights)) + float(tried @ tried) / 2 / len(rows)

        start, bounds = np.full(len(parts), 1 / len(parts)), [(0, MOST_EXPONENT)] * len(parts)
        return np.asarray(minimize(cost, start, method="L-BFGS-B", bounds=bounds).x)

    if not 2 <= len(labels) < SMALL_VALID:
        exponents = best(every).round(3)
        reached = score(exponents)
    else:
        orders = [stream(0, "mix", number).permutation(len(labels)) for number in range(10)]
        halves = [half for order in orders for half in np.array_split(order, 2)]
        fits = [best(half) for half in halves]
        others = [halves[number ^ 1] for number in range(len(halves))]
        exponents = np.mean(fits, axis=0).round(3)
        value, loss = np.mean([score(fit, other) for fit, other in zip(fits, others, strict=True)], axis=0)
        reached = float(value), float(loss)
    if not exponents.any():
        exponents[0] = 1.0
    share = round(float(exponents[-1] / exponents.sum()), 3)
    valid, test = (mixed([getattr(part, name) for part in parts], exponents) for name in ("valid", "test"))
    return BaselineResult(valid, test, share, [(share, *reached)], {"exponents": exponents})
