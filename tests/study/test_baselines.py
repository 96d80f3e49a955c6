"""The commonest class and TF-IDF: by hand, against scikit-learn's own pipeline, and on real reviews."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from headstart.study.baselines import STRENGTHS, majority, tfidf

DATA = os.environ.get("HEADSTART_DATA")
GOOD = ["a lovely book", "lovely and warm", "what a lovely story", "warm, lovely, wise", "a wise book"]
BAD = ["a dull book", "dull and cold", "what a dull story", "cold, dull, flat", "a flat book"]
TRAIN, TARGETS = GOOD[:4] + BAD[:4], [1] * 4 + [0] * 4
VALID, VALID_TARGETS = [GOOD[4], BAD[4], "lovely", "dull"], [1, 0, 1, 0]


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_majority_is_the_commonest_class():
    assert majority([0, 2, 2, 1], 3).tolist() == [2, 2, 2]
    assert majority([3], 2).tolist() == [3, 3]
    assert majority([0, 1], 0).tolist() == []


def test_majority_among_equals_is_the_lowest_class_number():
    assert majority([2, 1, 1, 2, 0], 2).tolist() == [1, 1]


def test_tfidf_learns_what_words_tell():
    found = tfidf(TRAIN, TARGETS, VALID, VALID_TARGETS, ["so lovely", "how dull", "warm", "cold"])
    assert found.predictions.tolist() == [1, 0, 1, 0]


def test_tfidf_is_scikit_learns_own_pipeline_at_the_strength_that_is_best_on_valid():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline, make_union

    valid_targets = [1, 0, 0, 1]  # half of them wrong, so that accuracy ties and the loss has to choose
    test = ["a book", "lovely dull", "wise and flat", "story"]
    found = tfidf(TRAIN, TARGETS, VALID, valid_targets, test)
    expected = []
    for strength in STRENGTHS:
        pipeline = make_pipeline(
            make_union(
                TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
                TfidfVectorizer(ngram_range=(2, 5), sublinear_tf=True, analyzer="char"),
            ),
            LogisticRegression(C=strength, tol=1e-6, max_iter=10_000),
        ).fit(TRAIN, TARGETS)
        loss = log_loss(valid_targets, pipeline.predict_proba(VALID))
        expected.append((strength, pipeline.score(VALID, valid_targets), loss, pipeline.predict(test)))
    np.testing.assert_allclose(found.tries, [tuple(row[:3]) for row in expected], rtol=1e-6)
    best = sorted(expected, key=lambda row: (-row[1], row[2]))[0]
    assert found.strength == best[0] == STRENGTHS[0]  # where half is wrong, the least sure loses least
    assert found.predictions.tolist() == best[3].tolist()


def test_tfidf_prefers_accuracy_and_then_the_lower_loss():
    found = tfidf(TRAIN, TARGETS, VALID, VALID_TARGETS, VALID)
    assert {accuracy for _, accuracy, _ in found.tries} == {1.0}
    losses = [loss for _, _, loss in found.tries]
    assert losses == sorted(losses, reverse=True)
    assert found.strength == STRENGTHS[-1]


def test_tfidf_is_the_same_for_every_seed():
    first = tfidf(TRAIN, TARGETS, VALID, VALID_TARGETS, VALID, seed=0)
    again = tfidf(TRAIN, TARGETS, VALID, VALID_TARGETS, VALID, seed=2**63 - 1)
    assert first.tries == again.tries
    assert first.predictions.tolist() == again.predictions.tolist()


def test_one_thread_adds_up_even_where_nothing_was_loaded_before():
    program = """
import headstart.study.baselines as baselines
fit, threads = baselines._fitted, set()
def watched(*args):
    from threadpoolctl import threadpool_info
    threads.update(library["num_threads"] for library in threadpool_info())
    return fit(*args)
baselines._fitted = watched
baselines.tfidf(["good day", "bad day"], [1, 0], ["good", "bad"], [1, 0], ["day"])
print(threads)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == "{1}\n", done.stderr


def test_a_class_that_train_does_not_hold_is_never_predicted_and_costs_the_full_loss():
    targets = [3 if target else 1 for target in TARGETS]  # of the classes 0 to 4
    found = tfidf(TRAIN, targets, VALID, [3, 1, 4, 0], ["lovely", "dull"])
    assert found.predictions.tolist() == [3, 1]
    for _, accuracy, loss in found.tries:
        assert accuracy == 0.5
        assert -np.log(1e-15) / 2 < loss < -np.log(1e-15) / 2 + 1


def test_one_class_and_rows_without_text_fall_back_to_the_majority():
    one_class = tfidf(TRAIN, [2] * 8, VALID, VALID_TARGETS, ["lovely", "dull"])
    assert one_class.predictions.tolist() == [2, 2]
    assert one_class.strength is None
    assert one_class.tries == []
    no_text = tfidf(["", "!", ""], [1, 0, 1], VALID, VALID_TARGETS, ["lovely", "dull"])
    assert no_text.predictions.tolist() == [1, 1]


def test_texts_without_words_are_told_apart_by_their_characters():
    found = tfidf(
        [":-)", ":-) :-)", ":-(", ":-( :-("], [1, 1, 0, 0], [":-)", ":-("], [1, 0], [":-(", ":-)", ""]
    )
    assert found.predictions[:2].tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="HEADSTART_DATA is not set")
def test_tfidf_reaches_on_real_reviews_what_is_known_of_it():
    from headstart.text.labelled import read_labelled

    train, valid, test = (
        read_labelled(Path(DATA) / "cls-books" / f"{name}.jsonl.gz") for name in ("train", "valid", "test")
    )
    targets = [[int(label) for label in part.labels] for part in (train, valid, test)]
    found = tfidf(train.texts, targets[0], valid.texts, targets[1], test.texts)
    accuracy = (found.predictions == np.array(targets[2])).mean()
    print(f"tfidf {accuracy=} {found.strength=} {found.tries=}")
    assert accuracy >= 0.845
    small = tfidf(train.texts[::32], targets[0][::32], valid.texts, targets[1], test.texts)
    assert 0.55 <= (small.predictions == np.array(targets[2])).mean() <= accuracy - 0.1
