"""Bad pairs and bad lines: refused with their place, or counted, before anything is trained."""

import gzip

import pytest
import translators
from commands import invoke
from expected_errors import refused

from headstart.errors import IntegrityError
from headstart.runs.load import load

GOOD = "le livre\tthe book\nla fin\tthe end\n" * 12


def tune(capsys, path, out, *flags):
    shape = ["--width", "16", "--ffn", "24", "--heads", "2", "--depth", "1", "--decoder-depth", "1"]
    return invoke(
        capsys,
        ["finetune", "--task", "translation", "--train", str(path), "--out", str(out), *shape, "--vocab", "300",
         "--length", "16", "--steps", "1", "--device", "cpu", "--precision", "fp32", "--threads", "1", *flags],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "line", "code", "value"),
    [
        (GOOD.encode() + "é\ta\n".encode("latin-1"), "", "bad-text", f"byte {len(GOOD)}"),
        (GOOD.encode() + b"one\n", ":25", "bad-row", "1 columns"),
        (GOOD.encode() + b"a\tb\tc\n", ":25", "bad-row", "3 columns"),
        (GOOD.encode() + b"a\t \n", ":25", "bad-row", "'2'"),
        (GOOD.encode() + b"a\t\x00\n", "", "bad-text", f"byte {len(GOOD) + 2}"),
        (b"", "", "too-few", ""),
        (b"\n\n", "", "too-few", ""),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_leaves_no_run(capsys, tmp_path, data, line, code, value):
    path = tmp_path / "train.tsv"
    path.write_bytes(data)
    answer = tune(capsys, path, tmp_path / "run")
    assert answer.code == 2
    assert f"headstart [{code}]: {path}{line}" in answer.err
    assert value in answer.err
    assert "fix: " in answer.err
    assert not (tmp_path / "run/config.toml").exists()


@pytest.mark.parametrize("text", ["le livre\tthe book\n", "le livre\tthe book\nLe livre\ta book\n" * 9])
def test_pairs_of_which_none_can_be_held_out_are_refused(capsys, tmp_path, text):
    (tmp_path / "train.tsv").write_text(text)
    answer = tune(capsys, tmp_path / "train.tsv", tmp_path / "run")
    assert answer.code == 2
    assert "no row can be held out for valid" in answer.err
    assert "give --valid" in answer.err


def test_bad_rows_are_counted_where_asked_and_gz_is_read(capsys, tmp_path):
    path = tmp_path / "train.tsv.gz"
    path.write_bytes(gzip.compress((GOOD + "one\n").encode()))
    answer = tune(capsys, path, tmp_path / "run", "--skip-bad-rows")
    assert answer.code == 0, answer.err
    assert "1 bad rows skipped" in answer.err


def test_text_that_spells_special_tokens_is_text(capsys, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(GOOD + "</s> <pad>\t<s>[MASK]\n")
    assert tune(capsys, path, tmp_path / "run").code == 0


def test_lines_that_are_not_text_are_refused_with_their_byte(capsys, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"la fin\n" + "né\n".encode("latin-1"))
    answer = invoke(capsys, ["translate", str(translators.path_of()), str(tmp_path / "in.txt"), "--device", "cpu"])
    assert answer.code == 2
    assert "headstart [bad-text]: " in answer.err
    assert "byte 8" in answer.err


@pytest.mark.parametrize("name", ["tokenizer.source.json", "tokenizer.target.json"])
def test_a_run_that_lost_a_tokenizer_says_which(tmp_path, name):
    out = tmp_path / "run"
    translators.train(out, vocabularies="separate", tokenizer=None, vocab=300)
    text = (out / name).read_text()
    (out / name).write_text(text.replace("</s>", "</t>", 1))
    with refused("mismatch", name, by=IntegrityError):
        load(out)
