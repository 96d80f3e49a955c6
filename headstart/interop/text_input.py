"""What scikit-learn hands over as X and y, as texts and labels; what is neither is refused by its row."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from headstart.data.readers.rows import SURROGATE, shown
from headstart.errors import UserError, nearest
from headstart.inference.predict import Text


class InputError(UserError, ValueError):
    """What was handed over cannot be used: a ValueError too, as scikit-learn has it."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Within it, what a user can do wrong is a ValueError as well."""
    try:
        yield
    except InputError:
        raise
    except UserError as error:
        raise InputError(error.what, where=error.where, fix=error.fix, code=error.code) from error


TextColumn = str | Sequence[str] | None


def texts_of(X: Any, column: TextColumn = None) -> list[Text]:
    """The texts of X: a list, array or Series of them, or two columns for pairs; of a table those that are named."""
    X = _named(X, column)
    if isinstance(X, str | bytes):
        raise InputError("X is one text", fix="give a list: [text]")
    if hasattr(X, "tocsr"):
        raise InputError("X is a sparse matrix, and texts are wanted", fix="give a list of texts")
    values = np.asarray(X if hasattr(X, "__array__") else list(X), dtype=object)
    if values.ndim == 0 or values.ndim > 2:
        what = f"X has {values.ndim} dimensions. Reshape your data"
        raise InputError(what, fix="give a list of texts, or two columns")
    if not len(values):
        raise InputError("X holds 0 samples, and at least 1 is needed", fix="give a list of texts", code="too-few")
    if values.ndim == 1:
        return [_text(value, f"X[{row}]") for row, value in enumerate(values)]
    if values.shape[1] not in (1, 2):
        fix = "give one column of texts, or two for pairs of texts; of a table name it: text_column=…"
        raise InputError(f"X has {values.shape[1]} columns", fix=fix)
    rows = [[_text(value, f"X[{row}, {n}]") for n, value in enumerate(v)] for row, v in enumerate(values)]
    return [(row[0], row[1]) if len(row) == 2 else row[0] for row in rows]


def _named(X: Any, column: TextColumn) -> Any:
    """The columns of a table that are named; what is no table is the texts themselves."""
    columns = getattr(X, "columns", None)
    if column is None or columns is None:
        return X
    names = [column] if isinstance(column, str) else list(column)
    known = {str(name): name for name in columns}
    for name in names:
        if name not in known:
            raise InputError(f"X has no column {name!r}", fix=nearest(name, known), code="unknown-name")
    return X[[known[name] for name in names]]


def _text(value: Any, where: str) -> str:
    if isinstance(value, str):
        if half := SURROGATE.search(value):
            what = f"holds half of a character, {half[0]!a}"
            raise InputError(what, where=where, fix="mend the text", code="bad-text")
        return str(value)
    what, fix = shown(value), "give texts: numbers are for other estimators"
    if _is_missing(value):
        what = "NaN" if isinstance(value, float | np.floating) else "missing"
        fix = "drop the row, or fill it with ''"
    elif isinstance(value, bytes):
        what, fix = "bytes", "decode it: value.decode('utf-8')"
    elif isinstance(value, float | complex | np.number):
        what = str(value)
    raise InputError(f"is {what}, not a text", where=where, fix=fix, code="bad-row")


def labels_of(y: Any, texts: Sequence[Text], who: str) -> np.ndarray:
    """The labels, one for each text, as an array of the type that they came in."""
    if y is None:
        what = f"{who} requires y to be passed, but the target y is None"
        raise InputError(what, fix="give a label a text", code="missing")
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    if y.dtype == object:
        missing = next((row for row, value in enumerate(y) if _is_missing(value)), None)
        if missing is not None:
            raise InputError("is missing, not a label", where=f"y[{missing}]", fix="drop the row", code="bad-row")
    check_classification_targets(y)
    check_consistent_length(texts, y)
    return y


def refuse_labels_as_texts(texts: Sequence[Text], y: np.ndarray) -> None:
    """Refuse a column of X that is y: whoever reads the answer has nothing to learn."""
    labels = [str(label).casefold() for label in y]
    columns = list(zip(*((text,) if isinstance(text, str) else text for text in texts), strict=True))
    for number, column in enumerate(columns):
        if [text.casefold() for text in column] == labels:
            what = f"column {number} of X is y, the labels" if len(columns) > 1 else "X is y, the labels"
            raise InputError(what, fix='give the texts alone: X["text"], or text_column="text"', code="conflict")


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float | np.floating) and math.isnan(value)
    return value is None or type(value).__name__ == "NAType" or is_nan


def names_of(classes: np.ndarray) -> list[str]:
    """What the run calls each class: its text; truth values as in JSON."""
    names = [str(one).lower() if isinstance(one, bool | np.bool_) else str(one) for one in classes]
    for name in names:
        if SURROGATE.search(name):
            raise InputError(f"the label {name!a} holds half of a character", fix="mend the label", code="bad-text")
    if len(set(names)) < len(names):
        raise InputError("two classes have the same name as text", fix="give labels of one type", code="conflict")
    return names
