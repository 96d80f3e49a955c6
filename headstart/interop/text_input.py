"""What scikit-learn hands over as X and y, as texts and labels; whatever is neither is refused by its place."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from headstart.errors import UserError
from headstart.text.rows import shown

Text = str | tuple[str, str]
_SURROGATE = re.compile("[\ud800-\udfff]")


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
        raise InputError(error.what, where=error.where, fix=error.fix) from error


def texts_of(X: Any) -> list[Text]:
    """The texts of X: a list, array or Series of them, or two columns for pairs."""
    if isinstance(X, str | bytes):
        raise InputError("X is one text", fix="give a list: [text]")
    if hasattr(X, "tocsr"):
        raise InputError("X is a sparse matrix, and texts are wanted", fix="give a list of texts")
    values = np.asarray(X if hasattr(X, "__array__") else list(X), dtype=object)
    if values.ndim == 0 or values.ndim > 2:
        raise InputError(
            f"X has {values.ndim} dimensions. Reshape your data", fix="give a list of texts, or two columns"
        )
    if not len(values):
        raise InputError("X holds 0 samples, and at least 1 is needed", fix="give a list of texts")
    if values.ndim == 1:
        return [_text(value, f"X[{row}]") for row, value in enumerate(values)]
    if values.shape[1] not in (1, 2):
        raise InputError(
            f"X has {values.shape[1]} columns", fix="give one column of texts, or two for pairs of texts"
        )
    columns = [[_text(value, f"X[{row}, {n}]") for row, value in enumerate(values[:, n])]
               for n in range(values.shape[1])]  # fmt: skip
    return list(zip(*columns, strict=True)) if len(columns) == 2 else list(columns[0])


def _text(value: Any, where: str) -> str:
    if isinstance(value, str):
        if half := _SURROGATE.search(value):
            raise InputError(f"holds half of a character, {half[0]!a}", where=where, fix="mend the text")
        return str(value)
    if isinstance(value, float | np.floating) and math.isnan(value):
        raise InputError("is NaN, not a text", where=where, fix="drop the row, or fill it with ''")
    if value is None or type(value).__name__ == "NAType":
        raise InputError("is missing, not a text", where=where, fix="drop the row, or fill it with ''")
    if isinstance(value, bytes):
        raise InputError("is bytes, not a text", where=where, fix="decode it: value.decode('utf-8')")
    what = str(value) if isinstance(value, float | complex | np.number) else shown(value)
    raise InputError(
        f"is {what}, not a text", where=where, fix="give texts: numbers are for other estimators"
    )


def labels_of(y: Any, texts: Sequence[Text], who: str) -> np.ndarray:
    """The labels, one for each text, as an array of the type that they came in."""
    if y is None:
        raise InputError(
            f"{who} requires y to be passed, but the target y is None", fix="give a label a text"
        )
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    if y.dtype == object:
        missing = next((row for row, value in enumerate(y) if _is_missing(value)), None)
        if missing is not None:
            raise InputError("is missing, not a label", where=f"y[{missing}]", fix="drop the row")
    check_classification_targets(y)
    check_consistent_length(texts, y)
    return y


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
    )


def names_of(classes: np.ndarray) -> list[str]:
    """What the run calls each class: its text; truth values as in JSON."""
    names = [str(one).lower() if isinstance(one, bool | np.bool_) else str(one) for one in classes]
    for name in names:
        if _SURROGATE.search(name):
            raise InputError(f"the label {name!a} holds half of a character", fix="mend the label")
    if len(set(names)) < len(names):
        raise InputError("two classes have the same name as text", fix="give labels of one type")
    return names
