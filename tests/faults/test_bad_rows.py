"""Rows that cannot be used, named with file, line and column; or skipped and counted."""

import builtins
import json
import sys

import pytest
from expected_errors import refused

from headstart.config.reading import Reading
from headstart.data.labelled import read_labelled, read_pairs
from headstart.data.readers import files, tables
from headstart.data.readers import rows as rows_module

GOOD = '{"text": "fine", "label": 1}\n'


def message_of(path, code="bad-row", reader=read_labelled, **options):
    with refused(code, path.name) as caught:
        reader(path, **options)
    assert caught.value.exit_code == 2
    assert caught.value.fix
    return caught.value.text


@pytest.mark.parametrize(
    ("row", "reason", "data"),
    [
        ('{"text": "a", "label": 1', "malformed JSON", "malformed JSON"),
        ("{'text': 'a', 'label': 1}", "malformed JSON", "malformed JSON"),
        ('{"text": "a", "text": "b", "label": 1}', "malformed JSON", "'text'"),
        ("[" * 100_000, "malformed JSON", "malformed JSON"),
        ('{"text": "a", "label": ' + "9" * 5000 + "}", "malformed JSON", "malformed JSON"),
        ('["a", 1]', "not an object", "jq -c"),
        ('"a"', "not an object", '"a"'),
        ('{"texte": "a", "label": 1}', "missing column", '"texte", "label"'),
        ('{"text": "a", "stars": 1}', "missing column", "--label-column"),
        ('{"text": 3, "label": 1}', "not text", "'text' holds 3"),
        ('{"text": ["a"], "label": 1}', "not text", '["a"]'),
        ('{"text": null, "label": 1}', "empty text", "'text'"),
        ('{"text": " \\n", "label": 1}', "empty text", "'text'"),
        ('{"text": "a\\ud800", "label": 1}', "lone surrogate", "'\\ud800'"),
        ('{"text": "a", "label": null}', "empty label", "'label'"),
        ('{"text": "a", "label": " "}', "empty label", "'label'"),
        ('{"text": "a", "label": 1.5}', "not a label", "--task=regression"),
        ('{"text": "a", "label": ["x"]}', "not a label", "--task=multilabel"),
        ('{"text": "a", "label": {"x": 1}}', "not a label", '{"x": 1}'),
        ('{"text": "a", "label": "\\udfff"}', "lone surrogate", "'label'"),
        ('{"text_a": "a", "text_b": "b", "label": 1}', "missing column", "2 "),
    ],
)  # fmt: skip
def test_a_bad_json_row_is_named_or_counted(tmp_path, row, reason, data):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{GOOD}\n{row}\n{GOOD}")
    message = message_of(path)
    assert f"{path}:3: " in message
    assert data in message
    assert "--skip-bad-rows" in message
    found = read_labelled(path, Reading(skip_bad_rows=True))
    assert len(found) == 2
    assert dict(found.skipped.counts) == {reason: 1}
    assert f"1 {reason} (first at {path}:3: " in found.skipped.summary()


@pytest.mark.parametrize(
    ("label", "shown"),
    [('"a"', '"a"'), ("NaN", "NaN"), ('"inf"', "inf"), ("true", "true"), ("1e999", "Infinity"),
     ('"3,5"', "3,5"), ("null", "null")],
)  # fmt: skip
def test_a_number_that_is_none_is_refused(tmp_path, label, shown):
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "label": {label}}}\n')
    assert shown in message_of(tmp_path / "a.jsonl", task="regression")
    with refused("too-few", "1 not a finite number"):  # the reason that is counted
        read_labelled(tmp_path / "a.jsonl", Reading(skip_bad_rows=True), task="regression")


def test_a_label_that_is_no_list_is_refused_for_multilabel(tmp_path):
    (tmp_path / "a.jsonl").write_text(GOOD)
    assert "'label'" in message_of(tmp_path / "a.jsonl", task="multilabel")
    with refused("too-few", "1 not a list of labels"):
        read_labelled(tmp_path / "a.jsonl", Reading(skip_bad_rows=True), task="multilabel")


@pytest.mark.parametrize(
    ("rows", "reason", "line", "data"),
    [
        ("a,1\nb\nc,0\n", "ragged row", 3, "1 columns"),
        ("a,1\nb,0,x\nc,0\n", "ragged row", 3, "3 columns"),
        ('a,1\n"b,0\nc,0\n', "unbalanced quotes", 3, "unbalanced quotes"),
        ('a,1\n"b"x,0\nc,0\n', "unbalanced quotes", 3, "unbalanced quotes"),
        ("a,1\n,0\nc,0\n", "empty text", 3, "'text'"),
        ("a,1\nb,\nc,0\n", "empty label", 3, "'label'"),
        ('"a\n\nb",1\n"c\nd\nf,0\n', "unbalanced quotes", 5, "unbalanced quotes"),
    ],
)
def test_a_bad_csv_row_is_named_or_counted(tmp_path, rows, reason, line, data):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + rows)
    message = message_of(path)
    assert f"{path}:{line}: " in message
    assert data in message
    found = read_labelled(path, Reading(skip_bad_rows=True))
    assert found.skipped.counts[reason] >= 1
    assert len(found) == 2


def test_an_open_quote_swallows_no_row_but_its_own(tmp_path):
    rows = [f"row {number},1\n" for number in range(1000)]
    rows[10] = '"row 10,1\n'
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(rows))
    found = read_labelled(tmp_path / "a.csv", Reading(skip_bad_rows=True))
    assert len(found) == 999
    assert found.skipped.counts == {"unbalanced quotes": 1}
    assert found.locations[10].endswith(":13")


@pytest.mark.parametrize("row", ["one", "one\ttwo\tthree", "\ttwo", "one\t", "one\t \n"])
def test_a_bad_pair_is_named_or_counted(tmp_path, row):
    path = tmp_path / "a.tsv"
    path.write_text(f"good\tbon\n{row}\nbad\tmauvais\n")
    assert f"{path}:2: " in message_of(path, reader=read_pairs)
    found = read_pairs(path, Reading(skip_bad_rows=True))
    assert found.sources == ["good", "bad"]
    assert found.skipped.counts.total() == 1


def test_pairs_need_two_texts(tmp_path):
    (tmp_path / "a.jsonl").write_text(GOOD)
    assert '"text", "label"' in message_of(tmp_path / "a.jsonl", reader=read_pairs)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_missing_column_names_those_there_are_and_the_nearest(tmp_path, name):
    tab = "\t" if name == "a.tsv" else ","
    (tmp_path / name).write_text(f"texte{tab}label\nx{tab}1\n")
    message = message_of(tmp_path / name, "unknown-name", reading=Reading(skip_bad_rows=True))
    assert '"texte", "label"' in message
    assert "'texte'?" in message
    assert "--text-column=1 --label-column=2" in message


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        (("1", "label"), "conflict"),
        (("text", "2"), "conflict"),
        (("0", "1"), "unknown-name"),
        (("1", "3"), "unknown-name"),
    ],
)
def test_column_numbers_that_cannot_be_are_refused(tmp_path, columns, code):
    (tmp_path / "a.csv").write_text("x,1\n")
    with refused(code, *map(repr, columns if code == "conflict" else ())):
        read_labelled(tmp_path / "a.csv", Reading(text_column=columns[0], label_column=columns[1]))


def test_a_wanted_column_that_stands_twice_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label,text\na,1,b\n")
    assert "'text'" in message_of(tmp_path / "a.csv", "conflict")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.txt"])
def test_a_row_too_long_to_hold_is_refused_or_skipped(tmp_path, monkeypatch, name):
    for module in (files, rows_module, tables):
        monkeypatch.setattr(module, "ROW_CHARACTERS", 1000)
    long = "x" * 1_000_000
    written = {
        "a.jsonl": f'{GOOD}{{"text": "{long}", "label": 1}}\n{GOOD}',
        "a.csv": f"text,label\nfine,1\n{long},1\nfine,1\n",
        "a.tsv": f"text\tlabel\nfine\t1\n{long}\t1\nfine\t1\n",
        "a.txt": f"fine\n{long}\nfine\n",
    }
    (tmp_path / name).write_text(written[name])
    (tmp_path / "a.label").write_text("1\n1\n1\n")
    line = 3 if name in ("a.csv", "a.tsv") else 2
    message = message_of(tmp_path / name)
    assert f"{name}:{line}: " in message
    assert "1,000" in message
    found = read_labelled(tmp_path / name, Reading(skip_bad_rows=True))
    assert len(found) == 2
    assert found.skipped.counts == {"row too long": 1}


def test_a_quote_that_never_closes_is_given_up_at_the_longest_row(tmp_path, monkeypatch):
    for module in (files, rows_module, tables):
        monkeypatch.setattr(module, "ROW_CHARACTERS", 1000)
    (tmp_path / "a.csv").write_text('text,label\n"open,1\n' + "fine,1\n" * 5000)
    assert "1,000 characters" in message_of(tmp_path / "a.csv")
    assert len(read_labelled(tmp_path / "a.csv", Reading(skip_bad_rows=True))) == 5000


def test_rows_and_labels_of_unequal_number_are_refused_with_both_counts(tmp_path):
    (tmp_path / "train.review.spm").write_text("▁un\n▁deux\n▁trois\n")
    (tmp_path / "train.label").write_text("1\n0\n")
    message = message_of(tmp_path / "train.review.spm", "mismatch", reading=Reading(skip_bad_rows=True))
    assert "3 rows" in message
    assert "2 labels" in message
    assert str(tmp_path / "train.label") in message


def test_all_rows_bad_is_refused_with_the_reasons(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "", "label": 1}\n{\n')
    message = message_of(tmp_path / "a.jsonl", "too-few", reading=Reading(skip_bad_rows=True))
    assert "1 empty text" in message


def test_parquet_without_its_extra_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("pyarrow")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    assert "pip install 'headstart[data]'" in message_of(tmp_path / "a.parquet", "no-package")


def test_broken_parquet_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really PAR1")
    message_of(tmp_path / "a.parquet", "bad-format")
    message_of(tmp_path / "b.parquet", "no-file")


def test_escape_codes_and_directions_in_rows_are_shown_not_obeyed(tmp_path):
    evil = "\x1b]0;owned\x07\u202e"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": [evil], evil: 1}, ensure_ascii=False) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": [evil], "label": 1}, ensure_ascii=False) + "\n")
    for name in ("a.jsonl", "b.jsonl"):
        message = message_of(tmp_path / name)
        assert not {"\x1b", "\x07", "\u202e"} & set(message)
        assert "u202e" in message
