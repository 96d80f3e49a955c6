"""Which columns are wanted of a row, and what becomes of a bad one."""

import pytest
from expected_errors import refused

from headstart.data.readers.rows import BadRows, Columns, Row, shown, texts_in


def row(**values):
    return Row("a.jsonl:4", values, {role: role for role in values})


@pytest.mark.parametrize(
    ("columns", "there", "chosen"),
    [
        (Columns(), ["id", "text"], {"text": "text"}),
        (Columns("review", "stars"), ["stars", "review"], {"text": "review", "label": "stars"}),
        (Columns(), ["text_a", "text_b", "label"], {"text": "text_a", "text_b": "text_b"}),
        (Columns(), ["text", "text_a", "text_b"], {"text": "text"}),
    ],
)  # fmt: skip
def test_every_role_has_its_column(columns, there, chosen):
    assert columns.choose(there, "a.csv") == chosen


@pytest.mark.parametrize(
    ("columns", "named"), [(Columns("txet"), "--text-column"), (Columns(label="labl"), "--label-column")]
)
def test_a_column_that_is_missing_is_told_with_the_flag_and_those_that_there_are(columns, named):
    with refused("unknown-name", "a.csv", '"text", "label"') as caught:
        columns.choose(["text", "label"], "a.csv")
    assert named in caught.value.fix
    assert "did you mean" in caught.value.fix


def test_columns_are_all_by_number_or_all_by_name():
    assert Columns("1", "2").by_number
    assert not Columns("text", "label").by_number
    with refused("conflict"):
        _ = Columns("1", "label").by_number


@pytest.mark.parametrize("value", [None, "", "  ", 3, ["a"], "\ud800"])
def test_a_row_without_a_text_is_an_error_or_is_counted(value):
    with refused("bad-row", "a.jsonl:4"):
        texts_in(row(text=value), BadRows())
    bad = BadRows(skip=True)
    assert texts_in(row(text=value), bad) == []
    assert bad.counts.total() == 1
    assert bad.summary().startswith("1 bad rows skipped: 1 ")


def test_one_text_or_two_are_given():
    assert texts_in(row(text="a"), BadRows()) == ["a"]
    assert texts_in(row(text="a", text_b="b"), BadRows()) == ["a", "b"]


def test_a_value_in_a_message_is_short():
    assert shown({"é": 1}) == '{"é": 1}'
    assert len(shown("x" * 999)) == 58
