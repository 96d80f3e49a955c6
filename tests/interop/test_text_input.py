"""What scikit-learn hands over, as texts and labels."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from expected_errors import refused

from headstart.errors import UserError
from headstart.interop.text_input import (
    InputError,
    labels_of,
    names_of,
    refuse_labels_as_texts,
    texts_of,
    value_errors,
)


@pytest.mark.parametrize(
    "given",
    [
        ["a", "b"],
        ("a", "b"),
        np.array(["a", "b"]),
        np.array([["a"], ["b"]], object),
        pd.Series(["a", "b"]),
        iter("ab"),
    ],
)
def test_texts_come_in_any_container(given):
    assert texts_of(given) == ["a", "b"]


def test_two_columns_are_pairs():
    assert texts_of(pd.DataFrame({"x": ["a", "b"], "y": ["c", "d"]})) == [("a", "c"), ("b", "d")]


def test_the_column_of_a_table_is_named():
    table = pd.DataFrame({"id": [1, 2], "text": ["a", "b"], "title": ["c", "d"]})
    assert texts_of(table, "text") == ["a", "b"]
    assert texts_of(table, ["title", "text"]) == [("c", "a"), ("d", "b")]
    assert texts_of(["a", "b"], "text") == ["a", "b"], "which is no table"
    with refused("unknown-name", "'txt'", "text", by=InputError):
        texts_of(table, "txt")
    with refused("bad-value", "3 columns", "text_column", by=InputError):
        texts_of(table)


def test_labels_among_the_texts_are_refused():
    labels = np.array([1, 2, 1])
    refuse_labels_as_texts(["1", "2", "2"], labels)
    refuse_labels_as_texts([("a", "1"), ("b", "2"), ("c", "2")], labels)
    for texts in (["1", "2", "1"], [("a", "1"), ("b", "2"), ("c", "1")], [("1", "a"), ("2", "b"), ("1", "c")]):
        with refused("conflict", "is y", by=InputError):
            refuse_labels_as_texts(texts, labels)


@pytest.mark.parametrize(
    ("given", "where", "code"),
    [
        (["a", 1.5], "X[1]", "bad-row"),
        (["a", None], "X[1]", "bad-row"),
        ([b"a"], "X[0]", "bad-row"),
        ([float("nan")], "X[0]", "bad-row"),
        (["\ud800"], "X[0]", "bad-text"),
        ([["a", "b"], ["c", 3]], "X[1, 1]", "bad-row"),
    ],
)
def test_what_is_no_text_is_named_by_its_row(given, where, code):
    with refused(code, where, by=InputError):
        texts_of(given)


@pytest.mark.parametrize(
    ("given", "code", "name"),
    [
        ("a text", "bad-value", "one text"),
        ([], "too-few", "0 samples"),
        (np.zeros((2, 3, 4)), "bad-value", "3 dimensions"),
        ([["a", "b", "c"]], "bad-value", "3 columns"),
        (scipy.sparse.eye(3), "bad-value", "sparse"),
    ],
)
def test_what_holds_no_texts_is_refused(given, code, name):
    with refused(code, "X", name, by=InputError):
        texts_of(given)


def test_labels_keep_their_type_and_their_number():
    assert labels_of([3, 1], ["a", "b"], "TextClassifier").tolist() == [3, 1]
    with pytest.raises(ValueError, match="inconsistent"):
        labels_of([3], ["a", "b"], "TextClassifier")
    with refused("missing", "TextClassifier", by=InputError):
        labels_of(None, ["a"], "TextClassifier")
    with refused("bad-row", "y[1]", by=InputError):
        labels_of(np.array(["x", None], object), ["a", "b"], "TextClassifier")


def test_classes_are_called_by_their_text():
    assert names_of(np.array([False, True])) == ["false", "true"]
    assert names_of(np.array([1, 20])) == ["1", "20"]
    with refused("conflict", by=InputError):
        names_of(np.array([1, "1"], object))


def test_an_error_of_ours_is_a_value_error_within():
    with pytest.raises(ValueError, match="wrong"), value_errors():
        raise UserError("wrong", fix="mend it")
