"""Tables by the ending of their name, read again by the standard library; no cell is a formula."""

import csv
import json

import pytest
from expected_errors import refused

from headstart.data.written_tables import safe_cell, table_writer

ROWS = [
    {"text": '=HYPERLINK("http://a.example")', "n": -3, "p": 0.25, "labels": ["a", "b"]},
    {"text": 'deux\nlignes, "ici"\tet là', "n": "+4.5e-3", "p": None, "labels": []},
]


def written(path):
    with table_writer(path) as write:
        for row in ROWS:
            write(row)
    return path


@pytest.mark.parametrize(("name", "delimiter"), [("t.csv", ","), ("t.tsv", "\t")])
def test_a_spreadsheets_table_has_no_formula_and_keeps_its_numbers(tmp_path, name, delimiter):
    with written(tmp_path / name).open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter=delimiter))
    assert found[0] == {"text": "'" + ROWS[0]["text"], "n": "-3", "p": "0.25", "labels": '["a", "b"]'}
    assert found[1] == {"text": ROWS[1]["text"], "n": "+4.5e-3", "p": "", "labels": "[]"}


def test_json_lines_are_as_they_were_given(tmp_path):
    assert [json.loads(line) for line in written(tmp_path / "t.jsonl").read_text().splitlines()] == ROWS


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@SUM(A1)", "  =1", "\t=1", "\r=1", "＝1", "- bon livre"])
def test_text_that_could_be_a_formula_begins_with_an_apostrophe(text):
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-3", "+0,5", "-1.5e10", "12 %"[:2], "un texte", "", 3, None, "a=b"])
def test_other_cells_stay(value):
    assert safe_cell(value) == value


def test_a_name_of_a_column_is_a_cell_too(tmp_path):
    with table_writer(tmp_path / "t.csv") as write:
        write({"p_=1+1": 1, "=1+1": 2})
    assert (tmp_path / "t.csv").read_text() == "p_=1+1,'=1+1\n1,2\n"


def test_what_cannot_be_written_is_refused_and_nothing_half_is_left(tmp_path):
    for path in (tmp_path / "t.xlsx", tmp_path / "nowhere" / "t.csv"):
        with refused("no-file" if path.suffix == ".csv" else "bad-value"), table_writer(path):
            pass
    with refused("bad-value", "more"), table_writer(tmp_path / "t.csv") as write:
        write({"a": 1})
        write({"a": 1, "more": 2})
    assert list(tmp_path.iterdir()) == []
