"""`headstart data`, as a user meets it: the page, the JSON, the files and the exit codes."""

import gzip
import hashlib
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import small

from headstart.cli import main
from headstart.cli.data import demo as data_demo
from headstart.cli.options import Common
from headstart.demo import corpus as demo

DATA = os.environ.get("HEADSTART_DATA")
LONG = "Ce roman m'a tenu en haleine du début à la fin et je le conseille vivement à tous mes amis lecteurs."


def jsonl(path, *rows):
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    return str(path)


@pytest.fixture
def files(tmp_path):
    return {
        "train": jsonl(tmp_path / "train.jsonl", ("Très bien !", 1), ("mal", 0), (LONG, 1), ("mal.", 0)),
        "valid": jsonl(tmp_path / "valid.jsonl", ("bof", 0), ("mieux", 1)),
        "test": jsonl(tmp_path / "test.jsonl", ("un", 1), ("tres bien", 1), (LONG.replace("fin", "page"), 1)),
    }


def run(capsys, *arguments):
    code = main.run(["data", "check", *arguments])
    return code, *capsys.readouterr()


def flags(files):
    return [part for name, path in files.items() for part in (f"--{name}", path)]


def test_json_has_leaks_rows_sets_and_warnings(capsys, files):
    code, out, err = run(capsys, *flags(files), "--json")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["leaks"]["test_in_train"] == 1
    assert report["leaks"]["near_test_in_train"] == 1
    assert report["leaks"]["train_repeats"] == 1
    assert report["leaks"]["rows"]["test_in_train"] == [1]
    assert report["leaks"]["rows"]["near_test_in_train"] == [2]
    train = report["sets"]["train"]
    assert (train["rows"], train["class_counts"], train["majority_share"]) == (4, {"0": 2, "1": 2}, 0.5)
    assert len(train["fingerprint"]) == 64
    assert report["corpus"] is None


def test_page_shows_sets_leaks_with_places_and_what_to_do(capsys, files):
    code, out, _ = run(capsys, *flags(files))
    assert code == 0
    assert "train.jsonl" in out
    assert "test in train: 1 equal, 1 near" in out
    assert "test.jsonl:2 = train.jsonl:1" in out
    assert "test.jsonl:3 ≈ " in out
    assert "train repeats: 1 equal, 0 near" in out
    assert "Drop these rows" in out
    assert "\x1b" not in out


def test_label_warnings_are_on_the_page_and_in_the_json(capsys, tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ("a", "pos"), ("b", "neg"), ("c", "Pos "), ("B!", "pos"))
    _, out, _ = run(capsys, "--train", path, "--json")
    kinds = [warning["kind"] for warning in json.loads(out)["warnings"]]
    assert kinds == ["conflicting_labels", "similar_labels", "single_row_class"]
    assert all(warning["set"] == "train" for warning in json.loads(out)["warnings"])
    _, out, _ = run(capsys, "--train", path)
    assert "'Pos␣' (1 row) and 'pos' (2 rows) look like one" in out.replace("\n", " ")
    assert "Pos␣: 1" in out  # in the table of classes too


def test_corpus_of_several_files_is_checked_against_the_rows(capsys, tmp_path, files):
    (tmp_path / "a.txt").write_text("autre chose\nTRES BIEN\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(f"Bonjour. {LONG}\nautre chose !\n".encode()))
    paths = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")]
    code, out, _ = run(capsys, "--corpus", *paths, *flags(files), "--json")
    report = json.loads(out)
    assert code == 0
    assert report["leaks"]["rows"]["test_in_corpus"] == [1]
    assert report["leaks"]["rows"]["near_train_in_corpus"] == [2]
    assert report["leaks"]["corpus_repeats"] == 1
    assert report["corpus"] == {"paths": paths, "documents": 4, "bad_rows": {}}


def test_corpus_from_standard_input(capsys, monkeypatch, files):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"mieux\n")))
    _, out, _ = run(capsys, "--corpus=-", *flags(files), "--json")
    assert json.loads(out)["leaks"]["valid_in_corpus"] == 1


def test_pairs_are_checked_as_translation(capsys, tmp_path):
    (tmp_path / "a.tsv").write_text("one\tun\ntwo\tdeux\n")
    (tmp_path / "b.tsv").write_text("three\ttrois\nOne!\tUn\n")
    paths = ["--train", str(tmp_path / "a.tsv"), "--test", str(tmp_path / "b.tsv")]
    code, out, _ = run(capsys, "--task", "translation", *paths, "--json")
    assert code == 0
    assert json.loads(out)["leaks"]["rows"]["test_in_train"] == [1]


def test_numbers_are_checked_as_regression(capsys, tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ("a", 1.5), ("b", 2))
    code, out, _ = run(capsys, "--task", "regression", "--train", path, "--json")
    assert code == 0
    assert json.loads(out)["sets"]["train"]["majority_share"] is None


def test_skipped_rows_are_counted_by_reason(capsys, tmp_path):
    (tmp_path / "a.csv").write_text("review,stars\ngood,1\n,0\nbad,0\nworse\n")
    arguments = ["--train", str(tmp_path / "a.csv"), "--text-column", "review", "--label-column", "stars"]
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert f"{tmp_path / 'a.csv'}:3: column 'review' is empty" in err.replace("\n", " ")
    code, out, _ = run(capsys, *arguments, "--skip-bad-rows", "--json")
    assert code == 0
    assert json.loads(out)["sets"]["train"]["bad_rows"] == {"empty text": 1, "ragged row": 1}
    _, out, _ = run(capsys, *arguments, "--skip-bad-rows")
    assert "empty text" in out


def test_every_bad_row_is_listed_by_its_line(capsys, tmp_path):
    path, test = tmp_path / "a.csv", tmp_path / "b.jsonl"
    path.write_text("text,label\ngood,1\n,0\nbad,0\nworse\nso so,\nfine,1\n")
    test.write_text('{"text": "x", "label": 1}\n{"text": 3, "label": 1}\nno json\n')
    arguments = ["--train", str(path), "--test", str(test)]
    code, out, err = run(capsys, *arguments)
    assert code == 2
    for name, line in (("a.csv", 3), ("a.csv", 5), ("a.csv", 6), ("b.jsonl", 2), ("b.jsonl", 3)):
        assert f"{tmp_path / name}:{line}: " in out.replace("\n", "")
    assert "5 bad rows in all" in err.replace("\n", " ")
    assert "--skip-bad-rows" in err
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 2
    found = [(row["set"], row["where"].rpartition(":")[2], row["reason"]) for row in json.loads(out)["bad_rows"]]
    assert found == [
        ("train", "3", "empty text"), ("train", "5", "ragged row"), ("train", "6", "empty label"),
        ("test", "2", "not text"), ("test", "3", "malformed JSON"),
    ]  # fmt: skip
    code, out, _ = run(capsys, *arguments, "--skip-bad-rows")
    assert (code, out.count(f"{tmp_path}")) == (0, 5)


def test_lengths_and_what_would_be_cut_are_those_of_the_tokenizer(capsys, tmp_path):
    texts = small.sentences(50, seed=3)
    path = jsonl(tmp_path / "a.jsonl", *((text, number % 2) for number, text in enumerate(texts)))
    small.tokenizer().save(tmp_path)
    counts = sorted(len(ids) for ids in small.tokenizer().encode_many(texts))
    arguments = ["--train", path, "--tokenizer", str(tmp_path), "--length", "16"]
    code, out, _ = run(capsys, *arguments, "--json")
    report = json.loads(out)
    lengths = report["sets"]["train"]["lengths"]
    assert code == 0
    assert lengths["tokens"] == {"median": counts[25], "p95": counts[47], "longest": counts[-1]}
    assert lengths["characters"]["longest"] == max(map(len, texts))
    assert lengths["cut"] == {"16": np.mean([count > 14 for count in counts])}
    assert [warning["count"] for warning in report["warnings"]] == [sum(count > 14 for count in counts)]
    _, out, _ = run(capsys, *arguments)
    assert f"median {counts[25]}, 95 % up to {counts[47]}" in out
    assert "are longer than 16 tokens, and are cut" in out
    _, out, _ = run(capsys, "--train", path)  # by a tokenizer of these rows, and no length is known
    assert "are longer than 512" in out
    assert "and are cut" not in out


def test_pairs_to_translate_are_as_long_as_their_longer_side(capsys, tmp_path):
    (tmp_path / "a.tsv").write_text("one\tun deux trois quatre\nfour five six\tcinq\n")
    _, out, _ = run(capsys, "--task", "translation", "--train", str(tmp_path / "a.tsv"), "--json")
    assert json.loads(out)["sets"]["train"]["lengths"]["characters"] == {"median": 20, "p95": 20, "longest": 20}


def test_advice_is_about_what_was_found(capsys, tmp_path):
    clean = jsonl(tmp_path / "a.jsonl", *((f"{word} is a word", n % 2) for n, word in enumerate(small.WORDS)))
    _, out, _ = run(capsys, "--train", clean)
    assert "→" not in out
    rows = [(f"{word} is a word", "good") for word in small.WORDS] + [("bad it is", "bad"), ("worse", "bad")]
    train, test = (jsonl(tmp_path / f"{name}.jsonl", *rows[first:]) for name, first in (("train", 0), ("test", 5)))
    _, out, _ = run(capsys, "--train", train, "--test", test)
    advice = [line for line in out.splitlines() if line.startswith("→")]
    assert [line[2:12] for line in advice] == ["Drop these", "--json lis"]
    assert "from train, or give each score on test" in advice[0]


@pytest.mark.parametrize(
    ("test_rows", "said"),
    [([("x", "neutral")], "'neutral'"), ([], "other.jsonl")],
)
def test_unusable_input_is_exit_2(capsys, tmp_path, files, test_rows, said):
    files["test"] = jsonl(tmp_path / "other.jsonl", *test_rows)
    code, out, err = run(capsys, *flags(files))
    assert (code, out) == (2, "")
    assert said in err.replace("\n", " ")
    assert "fix:" in err


def test_nothing_to_check_is_exit_2(capsys):
    code, _, err = run(capsys)
    assert code == 2
    assert "--train F" in err


def test_hostile_text_is_shown_not_obeyed(capsys, tmp_path):
    evil = "\x1b]0;owned\x07 \u202egnp.exe [bold]=HYPERLINK[/bold]"
    path = jsonl(tmp_path / "a.jsonl", (evil, "\x1b[31mred"), (evil, "\x1b[31mred "), ("c", "blue"))
    for extra in ([], ["--json"]):
        code, out, _ = run(capsys, "--train", path, *extra)
        assert code == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
        assert "[bold]" in out


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="HEADSTART_DATA is not set")
def test_cls_books_in_both_forms(capsys):
    folder = Path(DATA) / "cls-books"
    for name in ("{}.jsonl.gz", "original/{}.review.spm.gz"):
        paths = [part for s in ("train", "valid", "test") for part in (f"--{s}", str(folder / name.format(s)))]
        _, out, _ = run(capsys, *paths, "--json")
        leaks = json.loads(out)["leaks"]
        assert (leaks["test_in_train"], leaks["test_in_valid"], leaks["valid_in_train"]) == (43, 12, 13)
        assert (leaks["train_repeats"], leaks["valid_repeats"], leaks["test_repeats"]) == (20, 1, 35)


NAMES = ["unlabelled.txt", "train.jsonl", "valid.jsonl", "test.jsonl"]


@pytest.fixture
def small_demo(monkeypatch):
    """The corpus with few rows, so that it is written at once."""
    for sizes in (demo.SIZES, demo.PAIR_SIZES):
        for split in sizes:
            monkeypatch.setitem(sizes, split, 40)
    demo._whole_split.cache_clear()
    yield
    demo._whole_split.cache_clear()


def test_the_verb_prints_the_files_and_what_to_try_next(small_demo, tmp_path, capsys):
    data_demo(out=tmp_path / "my demo")
    page = capsys.readouterr().out
    assert all(name in page for name in NAMES)
    assert f"headstart tokenizer '{tmp_path}/my demo/unlabelled.txt'" in page.replace("\n", "")


def test_the_verb_answers_in_json(small_demo, tmp_path, capsys):
    data_demo(out=tmp_path, null=True, common=Common(seed=2, json=True))
    answer = json.loads(capsys.readouterr().out)
    assert (answer["seed"], answer["null"], answer["written"]) == (2, True, True)
    assert answer["files"]["unlabelled.txt"]["rows"] == 40
    data = Path(tmp_path / "train.jsonl").read_bytes()
    assert answer["files"]["train.jsonl"]["sha256"] == hashlib.sha256(data).hexdigest()
