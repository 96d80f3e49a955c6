"""A logistic regression as arrays, against scikit-learn's own pipelines."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union

from headstart.demo.corpus import reviews
from headstart.runs.linear import features, probabilities
from headstart.study.baselines import fit_lsa, logistic_regression, majority, tfidf

TRAIN = [review.french for review in reviews(0, "train", count=40)]
OTHERS = [review.french for review in reviews(0, "test", count=20)]


def single(arrays):
    """In the precision that a file has."""
    return {name: a.astype(np.float32) if a.dtype == np.float64 else a for name, a in arrays.items()}


@pytest.mark.parametrize("classes", [2, 3])
def test_tfidf_predicts_as_scikit_learns_pipeline(classes):
    labels = [row % classes for row in range(len(TRAIN))]
    found = tfidf(TRAIN, labels, OTHERS, [0] * len(OTHERS), OTHERS, classes)
    pipeline = make_pipeline(
        make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            TfidfVectorizer(ngram_range=(2, 5), sublinear_tf=True, analyzer="char"),
        ),
        LogisticRegression(C=found.chosen, tol=1e-8, max_iter=10_000),
    ).fit(TRAIN, labels)
    np.testing.assert_allclose(
        probabilities(single(found.arrays), OTHERS, classes), pipeline.predict_proba(OTHERS), atol=2e-4
    )


def test_arrays_give_the_probabilities_of_the_fit_again():
    labels = [0, 2] * 20  # of three classes; 1 is in no row
    found = tfidf(TRAIN, labels, OTHERS, [0] * len(OTHERS), OTHERS, 3)
    again = probabilities(found.arrays, OTHERS, 3)
    np.testing.assert_allclose(again, found.test, atol=1e-9)
    assert (again[:, 1] == 0).all()


def test_lsa_is_projected_before_the_regression():
    learnt, labels = fit_lsa(TRAIN[:10] + OTHERS[:5]), [row % 2 for row in range(len(TRAIN))]
    tables = [np.hstack(features(learnt, texts)).astype(float) for texts in (TRAIN, OTHERS)]
    found = logistic_regression(tables[0], tables[1], tables[1], labels, [0] * len(OTHERS), 2)
    again = probabilities({**learnt, **found.arrays}, OTHERS, 2)
    np.testing.assert_allclose(again, found.test, atol=1e-6)


def test_the_majority_class_needs_no_text():
    found = majority([0, 2, 2, 1], 1, 1, 4)
    np.testing.assert_allclose(probabilities(found.arrays, ["", "a"], 4), [[0.25, 0.25, 0.5, 0]] * 2)
