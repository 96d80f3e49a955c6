"""`headstart tokenizer`, as a user meets it: the page, the JSON, the files and the exit codes."""

import io
import json
import sys
from types import SimpleNamespace

import french_sentences
import pytest

from headstart.cli import main
from headstart.tokenizers.tokenizer import Tokenizer


@pytest.fixture(autouse=True)
def _verb(monkeypatch):
    monkeypatch.setitem(main.VERBS, "tokenizer", "headstart.cli.tokenizer:tokenizer")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "reviews.txt"
    path.write_text("\n".join(french_sentences.lines(300)), encoding="utf-8")
    return str(path)


def run(capsys, *arguments):
    code = main.run(["tokenizer", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_page_has_its_figures_and_writes_nothing(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, corpus, "--vocab", 400)
    assert (code, err) == (0, "")
    for word in (
        "400 tokens",
        "bytes per token",
        "tokens per word",
        "embedding",
        "Round trip",
        "œ and æ",
        "longest",
    ):
        assert word in out
    assert "lost" not in out
    assert "Nothing was written" in out
    assert max(map(len, out.splitlines())) <= 80
    assert [path.name for path in tmp_path.iterdir()] == ["reviews.txt"]


def test_out_keeps_the_tokenizer_and_json_tells_of_it(corpus, tmp_path, capsys):
    code, out, _ = run(capsys, corpus, "--vocab", 400, "--kind", "unigram", "--out", tmp_path / "kept", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["out"] == str(tmp_path / "kept" / "tokenizer.json")
    kept = Tokenizer.load(tmp_path / "kept")
    assert (kept.fingerprint, kept.size, kept.roles) == (
        found["fingerprint"],
        found["vocabulary"],
        found["roles"],
    )
    assert (found["texts"], found["texts_changed"], found["probes_changed"]) == (300, 0, 0)
    assert found["bytes_per_token"] == found["text_bytes"] / found["tokens"]
    assert 0 < found["embedding_share"] < 0.5


def test_a_tokenizer_that_is_there_is_examined(corpus, tmp_path, capsys):
    run(capsys, corpus, "--vocab", 400, "--kind", "wordpiece", "--out", tmp_path / "kept")
    code, out, _ = run(capsys, corpus, "--tokenizer", tmp_path / "kept")
    assert code == 0
    assert "lost" in out
    assert "written" not in out
    code, _, err = run(capsys, corpus, "--tokenizer", tmp_path / "kept", "--out", tmp_path / "again")
    assert (code, err.startswith("headstart [conflict]: --tokenizer")) == (2, True)
    assert "--out" in err


def test_characters_have_a_page_of_their_own(corpus, capsys):
    _, out, _ = run(capsys, corpus, "--kind", "char")
    assert "longest" not in out
    assert "bpe and unigram know" in out


def test_columns_bad_rows_and_standard_input(tmp_path, capsys, monkeypatch):
    table = tmp_path / "t.jsonl"
    rows = [json.dumps({"review": line}) for line in french_sentences.lines(50)]
    table.write_text("\n".join([*rows[:20], "{broken", *rows[20:]]), encoding="utf-8")
    code, _, err = run(capsys, table, "--text-column", "review")
    assert code == 2
    assert f"{table}:21" in err
    code, out, _ = run(capsys, table, "--text-column", "review", "--skip-bad-rows", "--json")
    found = json.loads(out)
    assert (code, found["texts"]) == (0, 50)
    assert any("1 bad rows skipped" in note for note in found["notes"])

    text = "\n".join(french_sentences.lines(50)).encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    code, out, _ = run(capsys, "-", "--json")
    assert (code, json.loads(out)["texts"]) == (0, 50)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "[missing]"),
        (["nowhere.txt"], "nowhere.txt"),
        (["CORPUS", "--vocb", "3"], "[unknown-name]: unknown option --vocb"),
        (["CORPUS", "--vocab", "9"], "263"),
        (["CORPUS", "--kind", "nonsense"], '[usage]: Invalid value "nonsense" for --kind'),
        (["CORPUS", "--tokenizer", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_is_exit_2_with_a_message(arguments, message, corpus, capsys):
    code, out, err = run(capsys, *[corpus if argument == "CORPUS" else argument for argument in arguments])
    assert (code, out) == (2, "")
    assert err.startswith("headstart [")
    assert message in " ".join(err.split())


def test_text_cannot_drive_the_terminal(tmp_path, capsys):
    path = tmp_path / "evil.txt"
    path.write_text("\x1b]0;titre\x07 \u202emot [red]gras[/red]\n" * 30, encoding="utf-8")
    code, out, _ = run(capsys, path, "--vocab", 300)
    assert code == 0
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_what_is_made_alike_on_request_is_no_loss(corpus, tmp_path, capsys):
    ways = ("--normalise", "lower-case,apostrophes")
    code, out, _ = run(capsys, corpus, "--vocab", 400, *ways, "--out", tmp_path / "kept")
    assert code == 0
    assert "Round trip, but for apostrophes and lower-case" in out
    assert "lost" not in out
    kept = Tokenizer.load(tmp_path / "kept")
    assert kept.decode(kept.encode("L’ÉTÉ")) == "l'été"
    _, out, _ = run(capsys, corpus, "--tokenizer", tmp_path / "kept", "--json")
    found = json.loads(out)
    assert (found["normalise"], found["texts_changed"]) == (["apostrophes", "lower-case"], 0)
    for arguments in (("--normalise", "upper-case"), (*ways, "--tokenizer", tmp_path / "kept")):
        code, _, err = run(capsys, corpus, *arguments)
        assert code == 2
        assert "normalis" in err
