"""The form of a source by its name, and folders that hold a dataset."""

import json

import pytest
from expected_errors import refused

from headstart.data.readers.rows import Columns
from headstart.data.readers.sources import Table, dataset_files, form_of, is_stdin, splits_in


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.txt", "text"), ("a", "text"), ("a.TXT.GZ", "text"), ("a.jsonl", "jsonl"), ("a.json.gz", "jsonl"),
     ("a.csv", "csv"), ("a.tsv", "tsv"), ("a.parquet", "parquet"), ("-", "text"), ("-.csv", "csv")],
)  # fmt: skip
def test_a_name_tells_the_form(name, form):
    assert form_of(name) == form


@pytest.mark.parametrize("name", ["a.docx", "a.zip", "a.pt", "a.safetensors", "a.pdf"])
def test_what_is_no_text_is_refused_by_its_name(name):
    with refused("bad-format", name):
        form_of(name)


def test_standard_input_has_its_names(tmp_path, monkeypatch):
    assert all(map(is_stdin, ["-", "/dev/stdin", "-.jsonl"]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-.jsonl").write_text("")
    assert not is_stdin("-.jsonl"), "a file of that name is a file"


def test_a_table_is_narrowed_to_what_is_wanted():
    table = Table("frame", ("id", "text", "label"), lambda names: iter([]))
    assert form_of(table) == "table"
    assert str(table) == "frame"
    assert table.narrowed(Columns(label="label").choose).columns == ("text", "label")


def test_parquet_files_are_splits_by_their_names(tmp_path):
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test"):
        (tmp_path / f"{name}.parquet").write_bytes(b"")
    assert splits_in(tmp_path) == {name: str(tmp_path / name) for name in ("train", "test")}
    assert [file.name for file in dataset_files(tmp_path / "train")] == [
        "train-00000-of-00002.parquet", "train-00001-of-00002.parquet",
    ]  # fmt: skip
    with refused("missing"):
        dataset_files(tmp_path)


def test_files_whose_names_match_no_split_are_one_set(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.parquet").write_bytes(b"")
    assert splits_in(tmp_path) == {}
    assert [file.name for file in dataset_files(tmp_path)] == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize("name", ["../elsewhere.arrow", "/etc/hostname", "", ".."])
def test_a_saved_dataset_names_files_beside_it_alone(tmp_path, name):
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with refused("bad-format", "state.json"):
        dataset_files(tmp_path)


def test_a_folder_that_is_no_dataset_is_refused(tmp_path):
    with refused("no-file"):
        dataset_files(tmp_path)
