"""Row 24: rows that cannot be used, named with file, line and column; or skipped and counted."""

import builtins
import json
import sys

import pytest

from headstart.errors import UserError
from headstart.text import rows as rows_module
from headstart.text import tables
from headstart.text.labelled import read_labelled
from headstart.text.pairs import read_pairs

GOOD = '{"text": "fine", "label": 1}\n'


def refused(path, reader=read_labelled, **options):
    with pytest.raises(UserError) as caught:
        reader(path, **options)
    assert caught.value.exit_code == 2
    assert caught.value.fix
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "reason", "said"),
    [
        ('{"text": "a", "label": 1', "malformed JSON", "malformed JSON"),
        ("{'text': 'a', 'label': 1}", "malformed JSON", "malformed JSON"),
        ('{"text": "a", "text": "b", "label": 1}', "malformed JSON", "the key 'text' stands twice"),
        ("[" * 100_000, "malformed JSON", "malformed JSON"),
        ('{"text": "a", "label": ' + "9" * 5000 + "}", "malformed JSON", "malformed JSON"),
        ('["a", 1]', "not an object", "jq -c"),
        ('"a"', "not an object", "not a JSON object"),
        ('{"texte": "a", "label": 1}', "missing column", "no column 'text'; the columns are \"texte\", \"label\""),
        ('{"text": "a", "stars": 1}', "missing column", "no column 'label'"),
        ('{"text": 3, "label": 1}', "not text", "column 'text' holds 3, not text"),
        ('{"text": ["a"], "label": 1}', "not text", "column 'text' holds [\"a\"], not text"),
        ('{"text": null, "label": 1}', "empty text", "column 'text' is empty"),
        ('{"text": " \\n", "label": 1}', "empty text", "column 'text' is empty"),
        ('{"text": "a\\ud800", "label": 1}', "lone surrogate", "'\\ud800'"),
        ('{"text": "a", "label": null}', "empty label", "column 'label' is empty"),
        ('{"text": "a", "label": " "}', "empty label", "column 'label' is empty"),
        ('{"text": "a", "label": 1.5}', "not a label", "--task regression"),
        ('{"text": "a", "label": ["x"]}', "not a label", "--task multilabel"),
        ('{"text": "a", "label": {"x": 1}}', "not a label", "holds {\"x\": 1}"),
        ('{"text": "a", "label": "\\udfff"}', "lone surrogate", "column 'label'"),
        ('{"text_a": "a", "text_b": "b", "label": 1}', "missing column", "2 texts where the first row has 1"),
    ],
)  # fmt: skip
def test_a_bad_json_row_is_named_or_counted(tmp_path, row, reason, said):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{GOOD}\n{row}\n{GOOD}")
    message = refused(path)
    assert f"{path}:3: " in message
    assert said in message
    assert "--skip-bad-rows" in message
    found = read_labelled(path, skip_bad_rows=True)
    assert len(found) == 2
    assert dict(found.skipped.counts) == {reason: 1}
    assert f"1 {reason} (first at {path}:3: " in found.skipped.summary()


@pytest.mark.parametrize(
    ("label", "said"),
    [('"a"', "holds \"a\""), ("NaN", "holds NaN"), ('"inf"', "inf"), ("true", "true"), ("1e999", "Infinity"),
     ('"3,5"', "3,5"), ("null", "null")],
)  # fmt: skip
def test_a_number_that_is_none_is_refused(tmp_path, label, said):
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "label": {label}}}\n')
    message = refused(tmp_path / "a.jsonl", task="regression")
    assert said in message
    assert "not a finite number" in message


def test_a_label_that_is_no_list_is_refused_for_multilabel(tmp_path):
    (tmp_path / "a.jsonl").write_text(GOOD)
    assert "not a list of labels" in refused(tmp_path / "a.jsonl", task="multilabel")


@pytest.mark.parametrize(
    ("rows", "reason", "line", "said"),
    [
        ("a,1\nb\nc,0\n", "ragged row", 3, "1 columns where the first row has 2"),
        ("a,1\nb,0,x\nc,0\n", "ragged row", 3, "3 columns where the first row has 2"),
        ('a,1\n"b,0\nc,0\n', "unbalanced quotes", 3, "unbalanced quotes"),
        ('a,1\n"b"x,0\nc,0\n', "unbalanced quotes", 3, "unbalanced quotes"),
        ("a,1\n,0\nc,0\n", "empty text", 3, "column 'text' is empty"),
        ("a,1\nb,\nc,0\n", "empty label", 3, "column 'label' is empty"),
        ('"a\n\nb",1\n"c\nd\nf,0\n', "unbalanced quotes", 5, "unbalanced quotes"),
    ],
)
def test_a_bad_csv_row_is_named_or_counted(tmp_path, rows, reason, line, said):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + rows)
    message = refused(path)
    assert f"{path}:{line}: " in message
    assert said in message
    found = read_labelled(path, skip_bad_rows=True)
    assert found.skipped.counts[reason] >= 1
    assert len(found) == 2


def test_an_open_quote_swallows_no_row_but_its_own(tmp_path):
    rows = [f"row {number},1\n" for number in range(1000)]
    rows[10] = '"row 10,1\n'
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(rows))
    found = read_labelled(tmp_path / "a.csv", skip_bad_rows=True)
    assert len(found) == 999
    assert found.skipped.counts == {"unbalanced quotes": 1}
    assert found.places[10].endswith(":13")


@pytest.mark.parametrize("row", ["one", "one\ttwo\tthree", "\ttwo", "one\t", "one\t \n"])
def test_a_bad_pair_is_named_or_counted(tmp_path, row):
    path = tmp_path / "a.tsv"
    path.write_text(f"good\tbon\n{row}\nbad\tmauvais\n")
    assert f"{path}:2: " in refused(path, read_pairs)
    found = read_pairs(path, skip_bad_rows=True)
    assert found.sources == ["good", "bad"]
    assert found.skipped.counts.total() == 1


def test_pairs_need_two_texts(tmp_path):
    (tmp_path / "a.jsonl").write_text(GOOD)
    assert "one text where a pair is needed" in refused(tmp_path / "a.jsonl", read_pairs)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_missing_column_names_those_there_are_and_the_nearest(tmp_path, name):
    tab = "\t" if name == "a.tsv" else ","
    (tmp_path / name).write_text(f"texte{tab}label\nx{tab}1\n")
    message = refused(tmp_path / name, skip_bad_rows=True)
    assert 'no column \'text\'; the columns are "texte", "label"' in message
    assert "did you mean 'texte'?" in message
    assert "--text-column 1 --label-column 2" in message


@pytest.mark.parametrize("columns", [("1", "label"), ("text", "2"), ("0", "1"), ("1", "3")])
def test_column_numbers_that_cannot_be_are_refused(tmp_path, columns):
    (tmp_path / "a.csv").write_text("x,1\n")
    refused(tmp_path / "a.csv", text_column=columns[0], label_column=columns[1])


def test_a_wanted_column_that_stands_twice_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label,text\na,1,b\n")
    assert "'text' stands twice" in refused(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.txt"])
def test_a_row_too_long_to_hold_is_refused_or_skipped(tmp_path, monkeypatch, name):
    for module in (rows_module, tables):
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
    assert f"{name}:{line}: a row of over 1,000 characters" in refused(tmp_path / name)
    found = read_labelled(tmp_path / name, skip_bad_rows=True)
    assert len(found) == 2
    assert found.skipped.counts == {"row too long": 1}


def test_a_quote_that_never_closes_is_given_up_at_the_longest_row(tmp_path, monkeypatch):
    for module in (rows_module, tables):
        monkeypatch.setattr(module, "ROW_CHARACTERS", 1000)
    (tmp_path / "a.csv").write_text('text,label\n"open,1\n' + "fine,1\n" * 5000)
    assert "no closing quote in 1,000 characters" in refused(tmp_path / "a.csv")
    assert len(read_labelled(tmp_path / "a.csv", skip_bad_rows=True)) == 5000


def test_rows_and_labels_of_unequal_number_are_refused_with_both_counts(tmp_path):
    (tmp_path / "train.review.spm").write_text("▁un\n▁deux\n▁trois\n")
    (tmp_path / "train.label").write_text("1\n0\n")
    message = refused(tmp_path / "train.review.spm", skip_bad_rows=True)
    assert "3 rows of text but 2 labels" in message
    assert str(tmp_path / "train.label") in message


def test_all_rows_bad_is_refused_with_the_reasons(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "", "label": 1}\n{\n')
    message = refused(tmp_path / "a.jsonl", skip_bad_rows=True)
    assert "holds no usable row" in message
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
    assert "pip install 'headstart[data]'" in refused(tmp_path / "a.parquet")


def test_broken_parquet_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really PAR1")
    assert "not a readable parquet file" in refused(tmp_path / "a.parquet")
    assert "parquet is read from a file only" in refused(tmp_path / "b.parquet")


def test_escape_codes_and_directions_in_rows_are_shown_not_obeyed(tmp_path):
    evil = "\x1b]0;owned\x07\u202e"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": [evil], evil: 1}, ensure_ascii=False) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": [evil], "label": 1}, ensure_ascii=False) + "\n")
    for name in ("a.jsonl", "b.jsonl"):
        message = refused(tmp_path / name)
        assert not {"\x1b", "\x07", "\u202e"} & set(message)
        assert "u202e" in message
