"""The estimators: scikit-learn's own checks and tools, labels of any type, what is no text, pickles without a model."""

import pickle
import pickletools
import warnings
from functools import cache

import numpy as np
import pytest
import small
import tiny_runs
import torch
import translators
from expected_errors import refused
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import headstart
from headstart.config.training import LoopConfig
from headstart.errors import IntegrityError, UserError
from headstart.interop.sklearn import kept, opened
from headstart.interop.text_input import InputError
from headstart.training.tasks.finetune import finetune

SHAPE = {"width": 16, "ffn": 24, "heads": 2, "depth": 1, "context": 64}
HERE = {"threads": 1, "device": "cpu", "precision": "fp32"}
TEXTS = small.sentences(40, seed=4)
LABELS = ["oui" if "belle" in text else "non" for text in TEXTS]


def classifier(**parameters):
    return headstart.TextClassifier(**{"model": SHAPE, "vocab": 320, "length": 24, "steps": 2, **HERE, **parameters})


def encoder(**parameters):
    return headstart.TextEncoder(tiny_runs.path_of("causal"), **HERE, **parameters)


@cache
def fitted():
    return classifier().fit(TEXTS, LABELS)


# ---- scikit-learn's checks ----------------------------------------------------------------------------------


def spelled(X):
    """Rows of numbers as texts, a word for each number; one that is not finite stands for its row."""
    values = np.asarray(X) if hasattr(X, "__array__") or isinstance(X, list) else None
    if values is None or values.ndim != 2 or values.dtype.kind not in "biufO":
        return X
    return [
        " ".join("abcdefghij"[n % 10] + "nmpq"[int(np.digitize(v, [-0.5, 0, 0.5]))] for n, v in enumerate(row))
        if np.isfinite(row).all()
        else row[~np.isfinite(row)][0]
        for row in values.astype(float)
    ]


class Numbers:
    """Says that it reads numbers, so that scikit-learn runs all of its checks."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False
        return tags


class NumberClassifier(Numbers, headstart.TextClassifier):
    def fit(self, X, y):
        return super().fit(spelled(X), y)

    def predict_proba(self, X):
        return super().predict_proba(spelled(X))


class NumberEncoder(Numbers, headstart.TextEncoder):
    def fit(self, X, y=None):
        return super().fit(spelled(X), y)

    def transform(self, X):
        return super().transform(spelled(X))


NO_COLUMNS = "texts have no columns to count, so another number of them is no error"
CANNOT_PASS = {
    "check_n_features_in": NO_COLUMNS,
    "check_n_features_in_after_fitting": NO_COLUMNS,
    "check_complex_data": "a complex number is refused as every number is, in words of our own",
    "check_estimators_empty_data_messages": "a row without columns is spelled as an empty text, which is a text",
    "check_fit2d_predict1d": "one dimension is how texts come, so nobody is told to reshape it",
}
CLASSIFIER_CANNOT_PASS = {**CANNOT_PASS, "check_classifiers_train": NO_COLUMNS}
ENCODER_CANNOT_PASS = {**CANNOT_PASS, "check_transformer_general": NO_COLUMNS}


def failures(estimator, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    assert len(found) > 40, "scikit-learn looked at little"
    unexpected = {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    needless = set(expected) - {one["check_name"] for one in found if one["status"] == "xfail"}
    return unexpected, needless, {one["check_name"]: str(one["exception"]) for one in found}


@pytest.mark.slow
def test_the_classifier_passes_scikit_learns_checks_but_for_those_of_numbers():
    learner = NumberClassifier(model=SHAPE, vocab=320, epochs=12, batch=32, learning_rate=5e-3, pooling="mean", **HERE)
    unexpected, needless, messages = failures(learner, CLASSIFIER_CANNOT_PASS)
    assert unexpected == {}
    assert needless == set()
    assert "number of features" in messages["check_classifiers_train"], "it did not even learn"


def test_the_encoder_passes_scikit_learns_checks_but_for_those_of_numbers():
    reader = NumberEncoder(tiny_runs.path_of("causal"), **HERE)
    unexpected, needless, messages = failures(reader, ENCODER_CANNOT_PASS)
    assert unexpected == {}
    assert needless == set()
    assert "number of features" in messages["check_transformer_general"]


@pytest.mark.parametrize("make", [classifier, encoder])
def test_check_estimator_has_nothing_against_the_estimators_themselves(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(make())
    assert {one["status"] for one in found} == {"passed"}


# ---- the same as finetune -----------------------------------------------------------------------------------


def test_fit_learns_what_finetune_learns(tmp_path):
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    result = finetune(
        rows, out=tmp_path / "run", model=SHAPE, vocab=320, length=24, steps=2, valid_share=0,
        loop=LoopConfig(), machine=tiny_runs.MACHINE,
    )  # fmt: skip
    assert fitted().result_["weights_sha256"] == result["weights_sha256"]
    assert fitted().result_["valid"] is None


def test_fit_is_the_same_for_a_seed_and_another_for_another():
    again, other = classifier().fit(TEXTS, LABELS), classifier(seed=1).fit(TEXTS, LABELS)
    assert np.array_equal(again.predict_proba(TEXTS), fitted().predict_proba(TEXTS))
    assert not np.array_equal(other.predict_proba(TEXTS), fitted().predict_proba(TEXTS))


def test_a_share_held_out_is_measured_by():
    learner = classifier(valid=0.2, patience=1, evaluate_every=1).fit(TEXTS, LABELS)
    assert 0 <= learner.result_["valid"]["accuracy"] <= 1


def test_fit_starts_from_a_run():
    learner = headstart.TextClassifier(tiny_runs.path_of("causal"), steps=2, freeze="base", **HERE)
    learner.fit(TEXTS, LABELS)
    began, now = tiny_runs.run_of("causal").model, learner._loaded.model
    assert torch.equal(now.base.embedding.tokens.weight, began.base.embedding.tokens.weight)


def test_it_learns(tmp_path):
    learner = classifier(steps=120, learning_rate=1e-2, pooling="mean").fit(TEXTS, LABELS)
    assert learner.score(TEXTS, LABELS) > 0.9


# ---- labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.arange(40) % 2 == 0, np.array([False, True])),
        (10 - np.arange(40) % 3 * 5, np.array([0, 5, 10])),
        (
            np.arange(40) % 3 * 9.0 + 1,
            np.array([1.0, 10.0, 19.0]),
        ),  # as text 10.0 goes before 19.0 before 1.0
        (["b", "a"] * 20, np.array(["a", "b"])),
        (np.array(["é", "ü"] * 20, dtype=object), np.array(["é", "ü"], dtype=object)),
    ],
)
def test_labels_come_back_in_the_type_that_they_came_in(labels, classes):
    learner = classifier(steps=1).fit(TEXTS, labels)
    assert learner.classes_.dtype == classes.dtype
    assert learner.classes_.tolist() == classes.tolist()
    found, probabilities = learner.predict(TEXTS), learner.predict_proba(TEXTS)
    assert found.dtype == classes.dtype
    assert found.tolist() == classes[probabilities.argmax(axis=1)].tolist()
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-12)


def test_probabilities_stand_under_their_classes():
    numbers = [1.0 if label == "oui" else 10.0 for label in LABELS]
    learner = classifier(steps=120, learning_rate=1e-2, pooling="mean").fit(TEXTS, numbers)
    assert learner.score(TEXTS, numbers) > 0.9


@pytest.mark.parametrize(
    ("labels", "code", "name"),
    [
        (["one"] * 40, "too-few", "'one'"),
        (None, "missing", "TextClassifier"),
        ([*LABELS[:-1], None], "bad-row", "y[39]"),
    ],
)
def test_labels_that_cannot_be_learned_are_named(labels, code, name):
    with refused(code, name, by=InputError):
        classifier().fit(TEXTS, labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.linspace(0, 1, 40), "Unknown label type"),
        ([np.nan, *[1.0] * 39], "y contains NaN"),
        (LABELS[:-1], "inconsistent numbers of samples"),
        (np.eye(40), "y should be a 1d array"),
    ],
)
def test_labels_that_scikit_learn_refuses_are_a_value_error(labels, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(TEXTS, labels)


# ---- texts --------------------------------------------------------------------------------------------------


def test_texts_may_come_in_any_container():
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    expected = fitted().predict_proba(TEXTS)
    frame = pandas.DataFrame({"text": TEXTS})
    column = datasets.Dataset.from_dict({"text": TEXTS})["text"]
    for texts in (
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object),
        frame["text"],
        frame,
        iter(TEXTS),
        column,
    ):
        assert np.array_equal(fitted().predict_proba(texts), expected)


def test_an_empty_text_is_a_text():
    assert len(fitted().predict(["", " ", "livre"])) == 3
    classifier(steps=1).fit([*TEXTS, ""], [*LABELS, "oui"])


def test_pairs_are_two_columns():
    pandas = pytest.importorskip("pandas")
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    learner = classifier(length=48).fit(pairs, LABELS)
    expected = learner.predict_proba(pairs)
    assert np.array_equal(learner.predict_proba(pandas.DataFrame(pairs)), expected)
    assert np.array_equal(learner.predict_proba(np.array(pairs)), expected)
    with refused("mismatch", "pairs of texts", "text_a", "text_b", by=InputError):
        learner.predict(TEXTS)
    with refused("mismatch", "single texts", "pair", by=InputError):
        fitted().predict(pairs)


def test_a_table_needs_the_name_of_its_texts_and_never_gives_its_labels():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"texte": TEXTS, "avis": LABELS})
    with refused("conflict", "column 1", "text_column", by=InputError):
        classifier().fit(table, table.avis)
    with refused("conflict", by=InputError):
        classifier().fit(table.avis, table.avis)
    named = classifier(text_column="texte").fit(table, table.avis)
    expected = fitted().predict_proba(TEXTS)
    for texts in (table, table[["texte"]], TEXTS):
        assert np.array_equal(named.predict_proba(texts), expected)
    vectors = encoder().fit(TEXTS).transform(TEXTS)
    assert np.array_equal(encoder(text_column="texte").fit(table).transform(table), vectors)


@pytest.mark.parametrize(
    ("texts", "code", "names"),
    [
        ("one text", "bad-value", ["one text"]),
        ([], "too-few", ["0 samples"]),
        (["a", None], "bad-row", ["X[1]", "missing"]),
        (["a", float("nan")], "bad-row", ["X[1]", "NaN"]),
        (["a", 3], "bad-row", ["X[1]", "3"]),
        ([b"a"], "bad-row", ["X[0]", "bytes"]),
        (["a\ud800"], "bad-text", ["X[0]", r"\ud800"]),
        (np.zeros((2, 5)), "bad-value", ["5 columns"]),
        (np.zeros((2, 2, 2), object), "bad-value", ["3 dimensions"]),
        ([["a", "b"], ["c", 1]], "bad-row", ["X[1, 1]", "1"]),
    ],
)
def test_what_is_no_text_is_refused_by_its_row(texts, code, names):
    for estimator, use in ((fitted(), "predict"), (encoder(), "fit")):
        with refused(code, *names, by=InputError):
            getattr(estimator, use)(texts)


def test_an_input_error_is_a_value_error_and_a_user_error():
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, UserError)


def test_missing_texts_of_pandas_are_refused():
    pandas = pytest.importorskip("pandas")
    with refused("bad-row", "X[1]", by=InputError):
        fitted().predict(pandas.Series(["a", pandas.NA]))


def test_what_is_not_fitted_says_so():
    for use in (classifier().predict, classifier().predict_proba, encoder().transform):
        with pytest.raises(NotFittedError):
            use(TEXTS)


# ---- scikit-learn's tools -----------------------------------------------------------------------------------


def test_parameters_are_kept_as_they_are_and_cloned():
    learner = classifier(start="scratch", valid=0.1)
    assert clone(learner).get_params() == learner.get_params()
    assert learner.get_params()["model"] is SHAPE
    assert learner.set_params(steps=3).steps == 3


def test_cross_validation_gives_a_score_for_each_fold():
    assert cross_val_score(classifier(), TEXTS, LABELS, cv=2).shape == (2,)


# Two processes have to import torch first, which takes its time.
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_search_over_parameters_keeps_the_best(tmp_path, jobs):
    search = GridSearchCV(classifier(directory=tmp_path), {"steps": [1, 2]}, cv=2, n_jobs=jobs)
    search.fit(np.array(TEXTS), LABELS)
    alone = clone(search.best_estimator_).set_params(directory=None).fit(TEXTS, LABELS)
    assert np.array_equal(search.predict_proba(TEXTS), alone.predict_proba(TEXTS))
    assert len(list(tmp_path.glob("fit-*/result.json"))) == 5  # two folds of two, and the best on all


def test_an_encoder_goes_before_a_linear_classifier():
    pipeline = make_pipeline(encoder(), LogisticRegression(max_iter=1_000)).fit(TEXTS, LABELS)
    assert pipeline.score(TEXTS, LABELS) > 0.6
    assert list(pipeline[0].get_feature_names_out()) == [f"textencoder{n}" for n in range(16)]
    frame = encoder().set_output(transform="pandas").fit_transform(TEXTS)
    assert frame.shape == (40, 16)


@pytest.mark.parametrize("pool", ["mean", "first", "last"])
def test_vectors_are_those_of_embed(pool):
    from headstart.inference.predict import embed

    found = encoder(pool=pool).fit_transform(TEXTS)
    expected = [one.vectors for one in embed(tiny_runs.run_of("causal"), TEXTS, tiny_runs.MACHINE, pool)]
    assert np.array_equal(found, np.stack(expected))
    assert found.dtype == np.float32


def test_an_encoder_refuses_what_it_cannot_read(tmp_path):
    with refused("not-a-run", "config.toml", by=InputError):
        headstart.TextEncoder(tmp_path).fit(TEXTS)
    with refused("bad-value", "pool is 'tokens'", by=InputError):
        encoder(pool="tokens").fit(TEXTS)


# ---- runs and pickles ---------------------------------------------------------------------------------------


def test_a_kept_run_is_found_again_and_is_a_run_like_any_other(tmp_path):
    learner = classifier(directory=tmp_path).fit(TEXTS, LABELS)
    (run,) = tmp_path.iterdir()
    written = (run / "weights.safetensors").stat().st_mtime_ns
    classifier(directory=tmp_path).fit(TEXTS, LABELS)
    assert (run / "weights.safetensors").stat().st_mtime_ns == written
    assert headstart.load(run).config.label_names == ["non", "oui"]
    assert headstart.load(run).config.data.train == "X"
    assert learner.result_["weights_sha256"] == headstart.load(run).loaded.digest


def test_fit_leaves_torch_as_it_was():
    torch.manual_seed(5)
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode(), torch.get_rng_state()
    classifier(threads=2).fit(TEXTS, LABELS).predict(TEXTS)
    after = torch.get_num_threads(), torch.get_deterministic_debug_mode(), torch.get_rng_state()
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


@pytest.mark.parametrize("make", [fitted, lambda: encoder().fit(TEXTS)])
def test_a_pickle_holds_bytes_and_no_model(make):
    estimator = make()
    data = pickle.dumps(estimator)
    named = [argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)]
    assert not any("torch" in name or name.startswith("headstart.model") for name in named)
    assert {type(content) for content in estimator.run_.values()} == {bytes}
    assert set(estimator.run_) == {"config.toml", "tokenizer.json", "weights.safetensors", "result.json"}
    again = pickle.loads(data)
    assert "_loaded" not in again.__dict__  # nothing is built before it is needed
    use = "transform" if hasattr(estimator, "transform") else "predict_proba"
    assert np.array_equal(getattr(again, use)(TEXTS), getattr(estimator, use)(TEXTS))


def test_bytes_that_were_changed_are_refused():
    again = pickle.loads(pickle.dumps(fitted()))
    weights = bytearray(again.run_["weights.safetensors"])
    weights[-1] ^= 1
    again.run_ = {**again.run_, "weights.safetensors": bytes(weights)}
    with refused("corrupt", "weights.safetensors", by=IntegrityError):
        again.predict(TEXTS)


# ---- a run as plain bytes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept_files():
    return kept(tiny_runs.run_of("classification"))


def test_what_is_opened_is_what_was_kept(kept_files):
    before, after = tiny_runs.run_of("classification"), opened(kept_files, "tuned")
    assert (after.digest, after.config, str(after.path)) == (before.digest, before.config, "tuned")
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    for (name, one), (_, other) in zip(before.model.named_parameters(), after.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_all_of_it_is_bytes(kept_files):
    assert set(kept_files) == {"config.toml", "tokenizer.json", "weights.safetensors", "result.json"}
    assert {type(content) for content in kept_files.values()} == {bytes}


@pytest.mark.parametrize("name", ["config.toml", "weights.safetensors"])
def test_a_file_that_is_missing_is_named(kept_files, name):
    with refused("missing", name, by=IntegrityError):
        opened({key: value for key, value in kept_files.items() if key != name}, "tuned")


def test_a_flipped_bit_is_found(kept_files):
    raw = kept_files["weights.safetensors"]
    with refused("corrupt", by=IntegrityError):
        opened({**kept_files, "weights.safetensors": raw[:-1] + bytes([raw[-1] ^ 1])}, "tuned")


def test_two_tokenizers_are_refused():
    with refused("wrong-run", str(translators.run_of("separate").path)):
        kept(translators.run_of("separate"))
