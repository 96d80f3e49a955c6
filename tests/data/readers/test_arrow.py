"""Rows of parquet files, with the names of their classes."""

import json

import pytest
from expected_errors import refused

from headstart.config.reading import Reading
from headstart.data.readers.arrow import arrow_rows, class_names, with_class_names
from headstart.data.readers.rows import BadRows, Columns

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
    "tags": {"feature": {"names": ["a", "b"], "_type": "ClassLabel"}, "_type": "Sequence"},
}


def rows(path, label="label"):
    return list(arrow_rows(path, Columns(label=label), Reading(), BadRows(), None))


def test_rows_come_in_order_with_their_places(tmp_path):
    count = 600  # more than a batch
    table = pyarrow.table({"text": [f"t{n}" for n in range(count)], "label": [n % 3 for n in range(count)]})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = rows(tmp_path / "a.parquet")
    assert [row.values for row in found] == [{"text": f"t{n}", "label": n % 3} for n in range(count)]
    assert found[299].where == f"{tmp_path / 'a.parquet'}:300"


def test_classes_are_read_by_their_names(tmp_path):
    schema = pyarrow.schema(
        [("text", pyarrow.string()), ("label", pyarrow.int64())],
        metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})},
    )
    table = pyarrow.table({"text": ["x", "y", "z"], "label": [1, 0, -1]}, schema=schema)
    parquet.write_table(table, tmp_path / "a.parquet")
    assert [row.values["label"] for row in rows(tmp_path / "a.parquet")] == ["pos", "neg", None]
    assert class_names(schema) == {"label": ["neg", "pos"], "tags": ["a", "b"]}


def test_a_number_becomes_its_name_in_lists_too_and_nothing_else_changes():
    assert with_class_names([0, 1, 5], ["a", "b"]) == ["a", "b", None]
    assert with_class_names("a", ["a", "b"]) == "a"
    assert with_class_names(7, None) == 7


def test_metadata_of_others_has_no_names():
    for raw in (b"{", b"[]", b'{"info": 3}'):
        assert class_names(pyarrow.schema([], metadata={b"huggingface": raw})) == {}


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not")
    with refused("bad-format", "a.parquet"):
        rows(tmp_path / "a.parquet")
