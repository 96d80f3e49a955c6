"""Data that is too little or too alike: refused with the file and what to do, before anything is trained."""

import os

import commands
import pytest

ROWS = {
    "one of each class": [f"text number {i},class {i}" for i in range(200)],
    "all alike": [f"the same text,{'ab'[i % 2]}" for i in range(12)],
    "two": ["a good book,good", "a bad book,bad"],
    "one": ["a good book,good"],
    "none": [],
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("a good book\na bad book\n")
    return tmp_path


@pytest.mark.parametrize("verb", ["finetune", "study"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_that_cannot_be_split_are_refused(here, capsys, name, verb):
    (here / "rows.csv").write_text("\n".join(["text,label", *ROWS[name], ""]))
    answer = commands.invoke(capsys, [verb, "--train", "rows.csv", "--out", "out", *verb_flags(verb)])
    assert (answer.code, "rows.csv" in answer.err, "fix: give" in answer.err) == (2, True, True), answer.err
    assert not list(here.glob("out/**/metrics.jsonl"))


def verb_flags(verb):
    return ["--corpus", "corpus.txt", "--preset", "tiny"] if verb == "study" else ["--steps", "1"]


def test_a_pair_of_translations_cannot_be_split(here, capsys):
    (here / "pairs.tsv").write_text("a good book\tun bon livre\n" * 9)
    answer = commands.invoke(capsys, ["finetune", "--task", "translation", "--train", "pairs.tsv", "--steps", "1"])
    assert (answer.code, "pairs.tsv" in answer.err, "--valid" in answer.err) == (2, True, True), answer.err


@pytest.mark.parametrize("text", ["a good book\na bad book\n", "the same\n" * 12], ids=["two", "alike"])
def test_a_corpus_of_less_than_a_block_is_refused(here, capsys, text):
    (here / "corpus.txt").write_text(text)
    answer = commands.invoke(capsys, ["pretrain", "--corpus", "corpus.txt", "--steps", "1", "--preset", "tiny"])
    assert (answer.code, "corpus.txt" in answer.err, "--length" in answer.err) == (2, True, True), answer.err
    assert not os.path.exists("runs") or not list(here.glob("runs/*/metrics.jsonl"))
