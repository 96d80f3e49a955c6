"""The majority class, TF-IDF, LSA and mixes: by hand, against scikit-learn's own pipeline, and on real reviews."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from headstart.demo.corpus import reviews
from headstart.runs.linear import features
from headstart.study.baselines import (
    STRENGTHS,
    BaselineResult,
    Choosing,
    fit_lsa,
    logistic_regression,
    majority,
    mix,
    scores,
    tfidf,
)

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


def test_majority_is_the_class_of_most_rows():
    found = majority([0, 2, 2, 1], 2, 3, 3)
    assert found.predictions.tolist() == [2, 2, 2]
    assert found.valid.tolist() == [[0.25, 0.25, 0.5]] * 2
    assert majority([3], 0, 2, 4).predictions.tolist() == [3, 3]
    assert majority([0, 1], 0, 0, 2).predictions.tolist() == []


def test_majority_among_equals_is_the_lowest_class_number():
    assert majority([2, 1, 1, 2, 0], 0, 2, 3).predictions.tolist() == [1, 1]


def test_tfidf_learns_what_words_tell():
    found = tfidf(TRAIN, TARGETS, VALID, VALID_TARGETS, ["so lovely", "how dull", "warm", "cold"], 2)
    assert found.predictions.tolist() == [1, 0, 1, 0]


def test_tfidf_is_scikit_learns_own_pipeline_at_the_strength_that_is_best_on_valid():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline, make_union

    valid_targets = [1, 0, 0, 1]  # half of them wrong, so that accuracy ties and the loss has to choose
    test = ["a book", "lovely dull", "wise and flat", "story"]
    found = tfidf(TRAIN, TARGETS, VALID, valid_targets, test, 2)
    expected = []
    for strength in STRENGTHS:
        pipeline = make_pipeline(
            make_union(
                TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
                TfidfVectorizer(ngram_range=(2, 5), sublinear_tf=True, analyzer="char"),
            ),
            LogisticRegression(C=strength, tol=1e-8, max_iter=10_000),
        ).fit(TRAIN, TARGETS)
        loss = log_loss(valid_targets, pipeline.predict_proba(VALID))
        expected.append((strength, pipeline.score(VALID, valid_targets), loss, pipeline.predict_proba(test)))
    np.testing.assert_allclose(found.tries, [tuple(row[:3]) for row in expected], rtol=2e-5)
    best = sorted(expected, key=lambda row: (-row[1], row[2]))[0]
    assert found.chosen == best[0] == STRENGTHS[0]  # where half is wrong, the least sure loses least
    np.testing.assert_allclose(found.test, best[3], rtol=2e-5)


def test_tfidf_prefers_accuracy_and_then_the_lower_loss():
    found = tfidf(TRAIN, TARGETS, VALID, VALID_TARGETS, VALID, 2)
    assert {accuracy for _, accuracy, _ in found.tries} == {1.0}
    losses = [loss for _, _, loss in found.tries]
    assert losses == sorted(losses, reverse=True)
    assert found.chosen == STRENGTHS[-1]


def test_one_thread_adds_up_even_where_nothing_was_loaded_before():
    program = """
import headstart.study.baselines as baselines
score, threads = baselines.scores, set()
def watched(*args):
    from threadpoolctl import threadpool_info
    threads.update(library["num_threads"] for library in threadpool_info())
    return score(*args)
baselines.scores = watched
baselines.tfidf(["good day", "bad day"], [1, 0], ["good", "bad"], [1, 0], ["day"], 2)
print(threads)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == "{1}\n", done.stderr


def test_a_class_that_train_does_not_hold_is_never_predicted_and_costs_the_full_loss():
    targets = [3 if target else 1 for target in TARGETS]  # of the classes 0 to 4
    found = tfidf(TRAIN, targets, VALID, [3, 1, 4, 0], ["lovely", "dull"], 5)
    assert found.predictions.tolist() == [3, 1]
    assert found.test[:, [0, 2, 4]].tolist() == [[0, 0, 0]] * 2
    for _, accuracy, loss in found.tries:
        assert accuracy == 0.5
        assert -np.log(1e-15) / 2 < loss < -np.log(1e-15) / 2 + 1


def test_one_class_and_rows_without_text_fall_back_to_the_majority():
    one_class = tfidf(TRAIN, [2] * 8, VALID, VALID_TARGETS, ["lovely", "dull"], 3)
    assert one_class.predictions.tolist() == [2, 2]
    assert one_class.chosen is None
    assert one_class.tries == []
    no_text = tfidf(["", "!", ""], [1, 0, 1], VALID, VALID_TARGETS, ["lovely", "dull"], 2)
    assert no_text.predictions.tolist() == [1, 1]


def test_texts_without_words_are_told_apart_by_their_characters():
    found = tfidf([":-)", ":-) :-)", ":-(", ":-( :-("], [1, 1, 0, 0], [":-)", ":-("], [1, 0], [":-(", ":-)", ""], 2)
    assert found.predictions[:2].tolist() == [0, 1]


# ---- LSA --------------------------------------------------------------------------------------------------------


def test_lsa_is_the_svd_of_what_occurs_near_what():
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    texts = [review.french for review in reviews(0, "unlabelled", count=3)]  # fewer n-grams than contexts
    stretches = [text[start : start + 350] for text in texts for start in range(0, len(text), 350)]
    others = [review.french for review in reviews(0, "test", count=10)]
    for part, size, settings in zip(
        features(fit_lsa(texts), others), (256, 128), ({}, {"analyzer": "char"}), strict=True
    ):
        ngrams = CountVectorizer(ngram_range=(2, 5) if settings else (1, 2), **settings).fit(stretches)
        counts = ngrams.transform(stretches).astype(float)
        pairs = (counts.T @ counts).toarray() - np.diag(np.asarray(counts.sum(axis=0)).ravel())
        pairs = pairs[:, np.argsort(-np.asarray(counts.sum(axis=0)).ravel(), kind="stable")[:4096]]
        table = np.log1p(4 * pairs * pairs.sum() / (pairs.sum(axis=1, keepdims=True) * pairs.sum(axis=0)))
        left, values, _ = np.linalg.svd(table, full_matrices=False)
        vectors = (left * np.sqrt(values))[:, :size]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        theirs = TfidfTransformer(sublinear_tf=True).fit(counts).transform(ngrams.transform(others)) @ vectors
        theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
        np.testing.assert_allclose(part @ part.T, theirs @ theirs.T, atol=2e-2)  # axes may be turned or mirrored


def test_without_spaces_lsa_knows_characters_alone():
    texts = [review.french for review in reviews(0, "unlabelled", count=5)]
    assert any(name.startswith("words") for name in fit_lsa(texts))
    assert not any(name.startswith("words") for name in fit_lsa([text.replace(" ", "") for text in texts]))


def test_lsa_of_texts_without_text_says_the_majority():
    learnt = fit_lsa(["", "!"])
    assert features(learnt, ["good", "bad", ""]) == []
    nothing = np.zeros((3, 0))
    found = logistic_regression(nothing, nothing, nothing, [1, 1, 0], [0, 0, 0], 2)
    assert found.predictions.tolist() == [1] * 3


# ---- two arms as one --------------------------------------------------------------------------------------------


def arm_of(right, labels, seed=0):
    """An arm that is right with this probability, and says 90 %."""
    hit = np.random.default_rng(seed).random(len(labels)) < right
    said = np.where(hit, labels, 1 - labels)
    tables = np.where(np.arange(2) == said[:, None], 0.9, 0.1)
    return BaselineResult(tables, tables, None, [])


@pytest.mark.parametrize("rows", [60, 2_000])
def test_a_mix_of_two_arms_takes_from_each_what_valid_shows(rows):
    labels = np.random.default_rng(9).integers(0, 2, rows)
    good, bad, other = arm_of(0.95, labels, 1), arm_of(0.5, labels, 2), arm_of(0.95, labels, 3)
    assert mix([good, bad], labels).chosen <= 0.15
    assert mix([bad, good], labels).chosen >= 0.85
    both = mix([good, other], labels)
    assert 0.2 <= both.chosen <= 0.8
    assert both.chosen in [weight for weight, _, _ in both.tries]
    a, b = both.arrays["exponents"]
    products = good.test**a * other.test**b
    np.testing.assert_allclose(both.test, products / products.sum(axis=1, keepdims=True))
    assert both.chosen == pytest.approx(b / (a + b), abs=1e-3)


def test_a_third_arm_has_an_exponent_of_its_own():
    labels = np.random.default_rng(9).integers(0, 2, 3_000)
    arms = [arm_of(0.8, labels, 1), arm_of(0.8, labels, 2), arm_of(0.8, labels, 3)]
    found = mix(arms, labels)
    shares = found.arrays["exponents"] / found.arrays["exponents"].sum()
    np.testing.assert_allclose(shares, 1 / 3, atol=0.05)
    assert (found.predictions == labels).mean() > mix(arms[:2], labels).tries[0][1] + 0.03, "a vote of three"


def test_the_exponents_are_those_of_a_logistic_regression_on_the_log_odds():
    from sklearn.linear_model import LogisticRegression

    labels = np.random.default_rng(9).integers(0, 2, 3_000)
    first, second = arm_of(0.9, labels, 1), arm_of(0.8, labels, 2)
    odds = np.stack([np.log(arm.valid[:, 1] / arm.valid[:, 0]) for arm in (first, second)], axis=1)
    expected = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-9).fit(odds, labels).coef_[0]
    np.testing.assert_allclose(mix([first, second], labels).arrays["exponents"], expected, atol=2e-3)


def test_an_arm_that_is_too_sure_does_not_drown_the_other():
    draws = np.random.default_rng(5)
    labels = draws.integers(0, 2, 4_000)
    signs = 2 * labels - 1
    calm, sure = (signs * strength + draws.normal(size=len(labels)) for strength in (1.0, 0.5))

    def arm(odds):
        share = 1 / (1 + np.exp(-odds))
        return BaselineResult(np.stack([1 - share, share], axis=1), np.stack([1 - share, share], axis=1), None, [])

    first, second = arm(0.5 * calm), arm(10 * sure)
    best = ((2 * calm + sure > 0) == labels).mean()  # the sum of both log-odds, which is the best rule
    assert (mix([first, second], labels).predictions == labels).mean() == pytest.approx(best, abs=0.003)
    assert ((0.5 * first.test + 0.5 * second.test).argmax(axis=1) == labels).mean() < best - 0.02


def test_scores_on_a_small_valid_are_of_rows_that_did_not_choose_the_exponents():
    labels = np.random.default_rng(9).integers(0, 2, 8)
    first, second = arm_of(0.5, labels, 1), arm_of(0.5, labels, 2)
    found = mix([first, second], labels)
    loss = next(loss for weight, _, loss in found.tries if weight == found.chosen)
    assert loss > scores(found.valid, labels)[1]


def test_two_arms_that_know_nothing_are_mixed_into_the_first():
    labels = np.array([0, 1] * 400)
    wrong = BaselineResult(*[np.where(np.arange(2) == labels[:, None], 0.1, 0.9)] * 2, None, [])
    found = mix([wrong, wrong], labels)
    assert (found.chosen, found.arrays["exponents"].tolist()) == (0.0, [1.0, 0.0])


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="HEADSTART_DATA is not set")
def test_tfidf_reaches_on_real_reviews_what_is_known_of_it():
    from headstart.data.labelled import read_labelled

    train, valid, test = (
        read_labelled(Path(DATA) / "cls-books" / f"{name}.jsonl.gz") for name in ("train", "valid", "test")
    )
    targets = [[int(label) for label in part.labels] for part in (train, valid, test)]
    found = tfidf(train.texts, targets[0], valid.texts, targets[1], test.texts, 2)
    accuracy = (found.predictions == np.array(targets[2])).mean()
    print(f"tfidf {accuracy=} {found.chosen=} {found.tries=}")
    assert accuracy >= 0.845
    small = tfidf(train.texts[::32], targets[0][::32], valid.texts, targets[1], test.texts, 2)
    assert 0.55 <= (small.predictions == np.array(targets[2])).mean() <= accuracy - 0.1


# ---- rare classes -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uneven():
    """Features and labels (train, valid) of two classes, one of which has a tenth of the rows."""
    rng = np.random.default_rng(4)
    labels = [(rng.random(300) < 0.1).astype(int) for _ in range(2)]
    return [rng.normal(0, 1, (300, 5)) + labels[part][:, None] for part in (0, 1)], labels


def test_balanced_weights_are_scikit_learns_own(uneven):
    from sklearn.linear_model import LogisticRegression

    (train, valid), (train_labels, valid_labels) = uneven
    how = Choosing("accuracy", "balanced")
    found = logistic_regression(train, valid, valid, train_labels, valid_labels, 2, how)
    model = LogisticRegression(C=found.chosen, class_weight="balanced", tol=1e-8).fit(train, train_labels)
    np.testing.assert_allclose(found.test, model.predict_proba(valid), atol=1e-4)
    plain = logistic_regression(train, valid, valid, train_labels, valid_labels, 2)
    assert found.predictions.sum() > 2 * plain.predictions.sum()


def test_the_strength_is_the_best_on_valid_by_macro_f1_where_that_counts(uneven):
    from sklearn.metrics import f1_score

    (train, valid), (train_labels, valid_labels) = uneven
    found = logistic_regression(train[:40], valid, valid, train_labels[:40], valid_labels, 2, Choosing("macro_f1"))
    scores_on_valid = [score for _, score, _ in found.tries]
    assert {value: score for value, score, _ in found.tries}[found.chosen] == max(scores_on_valid)
    expected = f1_score(valid_labels, found.valid.argmax(axis=1), average="macro")
    assert max(scores_on_valid) == pytest.approx(expected)


def test_a_mix_for_macro_f1_counts_rare_rows_as_if_there_were_as_many_as_of_the_others():
    rng = np.random.default_rng(5)
    labels = np.arange(5000) % 10 == 0
    logits = [rng.normal(2 * labels - 2, spread) for spread in (1.0, 2.0)]
    tables = [np.stack([1 / (1 + np.exp(x)), 1 / (1 + np.exp(-x))], axis=1) for x in logits]
    nine_times = np.concatenate([np.arange(5000), np.tile(np.flatnonzero(labels), 8)])
    found = {}
    for name, rows, metric in (
        ("macro", slice(None), "macro_f1"), ("many", nine_times, "accuracy"), ("plain", slice(None), "accuracy")
    ):  # fmt: skip
        parts = [BaselineResult(table[rows], table[:2], 1.0, []) for table in tables]
        found[name] = mix(parts, labels[rows].astype(int), metric).arrays["exponents"]
    np.testing.assert_allclose(found["macro"], found["many"], atol=0.01)
    assert np.abs(found["macro"] - found["plain"]).max() > 0.1
