"""Logistic regression over TF-IDF, or LSA, of words and characters, as plain arrays.

For each unit of text the arrays have the n-grams and their idf, with LSA the axes of the SVD too; then `coefficients`
(features, classes), `intercepts` and `classes`, the numbers of the classes that were in its training rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

UNITS: dict[Any, tuple[int, int]] = {"words": (1, 2), "characters": (2, 5)}
LEAST_PROBABILITY = 1e-15
Arrays = Mapping[str, np.ndarray]


def features(arrays: Arrays, texts: Sequence[str]) -> list[Any]:
    """The texts by what was learnt of each unit: TF-IDF (sparse), or by the axes of LSA, of length one."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import normalize
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from headstart.tokenizers.ngrams import Ngrams

    tables = []
    for unit, lengths in UNITS.items():
        learnt = {name.removeprefix(f"{unit} "): arrays[name] for name in arrays if name.startswith(f"{unit} ")}
        if not learnt:
            continue
        weigh = TfidfTransformer(sublinear_tf=True)
        weigh.idf_ = learnt["idf"]
        table = weigh.transform(Ngrams(unit, *lengths).load(learnt).transform(texts), copy=False)
        if "axes" in learnt:
            with threadpool_limits(1):
                table = normalize(table.astype(np.float32) @ learnt["axes"].T.astype(np.float32))
        tables.append(table)
    return tables


def mixed(tables: Sequence[np.ndarray], exponents: Sequence[float] | np.ndarray) -> np.ndarray:
    """A log-linear mix of tables of probabilities: each to its exponent, and the products made to sum to one."""
    from scipy.special import softmax

    weighed = zip(exponents, tables, strict=True)
    logits = sum(e * np.log(np.maximum(table, LEAST_PROBABILITY)) for e, table in weighed)
    return np.asarray(softmax(logits, axis=1))


def probabilities(arrays: Arrays, texts: Sequence[str], classes: int) -> np.ndarray:
    """Of each class (texts, classes); none for a class that was in no training row."""
    from scipy.special import softmax

    scores = np.tile(arrays["intercepts"].astype(float), (len(texts), 1))
    first = 0
    for table in features(arrays, texts):
        scores += table @ arrays["coefficients"][first : first + table.shape[1]].astype(float)
        first += table.shape[1]
    if scores.shape[1] == 1:  # of two classes, the second against the first
        scores = np.hstack([np.zeros_like(scores), scores])
    found = np.zeros((len(texts), classes))
    found[:, arrays["classes"]] = softmax(scores, axis=1)
    return found
