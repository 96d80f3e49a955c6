"""Tables: what was written is what is read, in every form, by name or by number."""

import csv
import gzip
import io
import json
import os
from pathlib import Path

import pytest
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.reading import DEFAULT_READING, Reading
from headstart.data.labelled import read_labelled, read_pairs
from headstart.data.readers.rows import BadRows, Columns, texts_in
from headstart.data.readers.tables import label_file, rows, spelled

DATA = os.environ.get("HEADSTART_DATA")


def cells(forbidden):
    """Texts with something else than white space in them (alone it is an empty text), and many odd signs."""
    odd = st.sampled_from([sign for sign in 'ab,;"é\t\n\r ' if sign not in forbidden])
    any_sign = odd | st.characters(exclude_characters=forbidden, exclude_categories=["Cs"])
    around = st.text(any_sign, max_size=20)
    return st.tuples(around, st.sampled_from('x"é,'), around).map("".join)


CELL = cells("\x00")  # a NUL looks like UTF-16
ONE_LINE = cells("\x00\t\n\r")


def texts_of(path, columns=Columns()):  # noqa: B008
    return [texts_in(row, BadRows()) for row in rows(path, columns, DEFAULT_READING, BadRows())]


def written_csv(table, **dialect):
    out = io.StringIO(newline="")
    csv.writer(out, **dialect).writerows(table)
    return out.getvalue().encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


def write(path, data, is_gzip):
    path = path.with_name(path.name + ".gz") if is_gzip else path
    path.write_bytes(gzip.compress(data) if is_gzip else data)
    return path


@settings(deadline=None)
@given(texts=st.lists(cells(""), min_size=1),
       ascii_only=st.booleans(), is_gzip=st.booleans())  # fmt: skip
def test_jsonl_gives_back_what_was_written(folder, texts, ascii_only, is_gzip):
    # A raw NUL in a file is refused; json always escapes it.
    lines = [json.dumps({"n": 1, "text": text}, ensure_ascii=ascii_only) for text in texts]
    path = write(folder / "a.jsonl", "\n".join(lines).encode(), is_gzip)
    assert texts_of(path) == [[text] for text in texts]


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(CELL, CELL), min_size=1), line_end=st.sampled_from(["\n", "\r\n", "\r"]),
       delimiter=st.sampled_from(",;"), is_gzip=st.booleans())  # fmt: skip
def test_csv_gives_back_what_was_written(folder, pairs, line_end, delimiter, is_gzip):
    table = [("label", "text"), *pairs]
    # With another line end than its own, Python's writer forgets to quote a cell that holds a CR or LF.
    quoting = csv.QUOTE_MINIMAL if line_end == "\r\n" else csv.QUOTE_ALL
    data = written_csv(table, lineterminator=line_end, delimiter=delimiter, quoting=quoting)
    found = texts_of(write(folder / "a.csv", data, is_gzip))
    assert found == [[text] for _, text in pairs]


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(ONE_LINE, ONE_LINE), min_size=1))
def test_quoted_tsv_gives_back_what_was_written(folder, pairs):
    table = [("label", "text"), *pairs]
    data = written_csv(table, delimiter="\t", quoting=csv.QUOTE_ALL)
    assert texts_of(write(folder / "a.tsv", data, False)) == [[text] for _, text in pairs]


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(ONE_LINE, ONE_LINE), min_size=1), is_gzip=st.booleans())
def test_pairs_are_read_without_any_quoting(folder, pairs, is_gzip):
    data = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    found = read_pairs(write(folder / "pairs.tsv", "\ufeff".encode() + data, is_gzip))
    assert list(zip(found.sources, found.targets, strict=True)) == pairs


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ('"a ""b"" c"', 'a "b" c'),
        ('"a', '"a'),
        ('a"', 'a"'),
        ('"', '"'),
        ('"A" is "B"', '"A" is "B"'),
        ('say "hi"', 'say "hi"'),
    ],
)
def test_quotes_in_tsv_are_unquoted_only_where_doubled_inside(tmp_path, cell, text):
    (tmp_path / "a.tsv").write_text(f"label\ttext\n1\t{cell}\n")
    assert texts_of(tmp_path / "a.tsv") == [[text]]


@settings(deadline=None)
@given(texts=st.lists(CELL, min_size=1))
def test_parquet_gives_back_what_was_written(folder, texts):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"other": list(range(len(texts))), "text": texts})
    parquet.write_table(table, folder / "a.parquet", row_group_size=3)
    assert texts_of(folder / "a.parquet") == [[text] for text in texts]


def test_columns_by_number_mean_that_there_is_no_header(tmp_path):
    (tmp_path / "a.csv").write_text("1,good\n0,bad\n")
    found = read_labelled(tmp_path / "a.csv", Reading(text_column="2", label_column="1"))
    assert found.texts == ["good", "bad"]
    assert found.labels == ["1", "0"]


def test_columns_by_name_stand_anywhere(tmp_path):
    (tmp_path / "a.csv").write_text('id,stars,review\n7,5,"good, very"\n8,1,bad\n')
    found = read_labelled(tmp_path / "a.csv", Reading(text_column="review", label_column="stars"))
    assert found.texts == ["good, very", "bad"]
    assert found.labels == ["5", "1"]


def test_a_cell_may_be_longer_than_the_csv_modules_own_limit(tmp_path):
    long = "mot " * 100_000
    (tmp_path / "a.csv").write_text(f'text\n"{long}"\n')
    assert texts_of(tmp_path / "a.csv") == [[long]]


def test_places_are_lines_of_the_file(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\n"two\nlines",1\n\nthree,0\n')
    found = read_labelled(tmp_path / "a.csv")
    assert [location.rsplit(":", 1)[1] for location in found.locations] == ["2", "5"]


def test_label_file_is_found_beside_the_text(tmp_path):
    for name in ("train.label", "valid.review.label"):
        (tmp_path / name).write_text("1\n")
    assert label_file(tmp_path / "train.review.spm.gz") == tmp_path / "train.label"
    assert label_file(tmp_path / "valid.review.txt") == tmp_path / "valid.review.label"
    with refused("missing", "test.label"):
        label_file(tmp_path / "test.review.spm.gz")


def test_lines_with_a_label_file_are_labelled_rows(tmp_path):
    (tmp_path / "train.txt").write_bytes("premier\r\ndeuxième\n".encode())
    (tmp_path / "train.label").write_text("pos\nneg")
    found = read_labelled(tmp_path / "train.txt")
    assert found.texts == ["premier", "deuxième"]
    assert found.labels == ["pos", "neg"]


def test_pieces_are_spelled_as_sentencepiece_does():
    assert spelled("▁C ' est ▁l ' étran ge .") == "C'est l'étrange."
    assert spelled("no pieces here") == "no pieces here"


@pytest.mark.skipif(not DATA, reason="HEADSTART_DATA is not set")
@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_the_courses_files_are_the_rows_of_the_jsonl(name):
    folder = Path(DATA) / "cls-books"
    course = read_labelled(folder / "original" / f"{name}.review.spm.gz")
    ours = read_labelled(folder / f"{name}.jsonl.gz")
    assert len(course) == len(ours) > 0
    assert course.texts == ours.texts
    assert course.labels == ours.labels
    assert course.fingerprint == ours.fingerprint
