"""Pairs of texts, from every form of file."""

import gzip
import json

import pytest
from expected_errors import refused

from headstart.config.reading import Reading
from headstart.data.labelled import read_pairs


def written(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def jsonl(path, *records):
    return written(path, "".join(json.dumps(record) + "\n" for record in records))


def test_a_tsv_has_no_header_and_no_quoting(tmp_path):
    found = read_pairs(written(tmp_path / "a.tsv", 'source\ttarget\n"a\t""b"\n'))
    assert found.sources == ["source", '"a']
    assert found.targets == ["target", '""b"']
    assert found.locations[1] == f"{tmp_path / 'a.tsv'}:2"


def test_every_form_gives_the_same_pairs(tmp_path):
    files = [
        written(tmp_path / "a.tsv", "un\tone\ndeux\ttwo\n"),
        written(tmp_path / "a.tsv.gz", "un\tone\ndeux\ttwo\n"),
        written(tmp_path / "a.csv", "source,target\nun,one\ndeux,two\n"),
        jsonl(tmp_path / "a.jsonl", {"source": "un", "target": "one"}, {"target": "two", "source": "deux"}),
        jsonl(tmp_path / "b.jsonl.gz", {"text_a": "un", "text_b": "one"}, {"text_a": "deux", "text_b": "two"}),
    ]
    found = [read_pairs(path) for path in files]
    assert all((pairs.sources, pairs.targets) == (["un", "deux"], ["one", "two"]) for pairs in found)
    assert len({pairs.fingerprint for pairs in found}) == 1


@pytest.mark.parametrize(
    ("name", "text", "line", "code", "value"),
    [
        ("a.tsv", "a\tb\nc\n", 2, "bad-row", "1 columns"),
        ("a.tsv", "a\tb\nc\td\te\n", 2, "bad-row", "3 columns"),
        ("a.tsv", "a\tb\n\n  \td\n", 3, "bad-row", "'1'"),
        ("a.jsonl", '{"source": "a", "target": "b"}\n{"source": "a"}\n', 2, "bad-row", '"source"'),
        ("a.jsonl", '{"source": "a", "target": 3}\n', 1, "bad-row", "3"),
        ("a.jsonl", '{"source": "a", "target": "b"}\n{"source"\n', 2, "bad-row", "JSON"),
        ("a.csv", "source;text\na;b\n", 1, "missing", '"source", "text"'),
    ],
)
def test_a_bad_row_is_named_with_its_line(tmp_path, name, text, line, code, value):
    with refused(code, f"{tmp_path / name}:{line}: ", value):
        read_pairs(written(tmp_path / name, text))


def test_bad_rows_are_skipped_and_counted_where_asked(tmp_path):
    found = read_pairs(written(tmp_path / "a.tsv", "a\tb\nc\nd\te\n"), Reading(skip_bad_rows=True))
    assert (found.sources, found.targets) == (["a", "d"], ["b", "e"])
    assert "1 bad rows skipped: 1 ragged row" in found.skipped.summary()


def test_a_file_without_pairs_is_refused(tmp_path):
    with refused("too-few"):
        read_pairs(written(tmp_path / "a.tsv", "\n\n"))


def test_a_subset_keeps_texts_and_places_together(tmp_path):
    found = read_pairs(written(tmp_path / "a.tsv", "a\tA\nb\tB\nc\tC\n")).subset([2, 0])
    assert (found.sources, found.targets) == (["c", "a"], ["C", "A"])
    assert [location[-1] for location in found.locations] == ["3", "1"]
