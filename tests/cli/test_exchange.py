"""`headstart export` and `headstart import`: families, messages, codes, and other verbs on an imported base."""

import json
import typing

import pytest
import random_runs
import tiny_runs
from commands import invoke

from headstart.cli.exchange import FamilyName
from headstart.interop.huggingface import FAMILIES
from headstart.runs.load import load


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """A classification run of random weights, and a base without a head."""
    path = tmp_path_factory.mktemp("verbs")
    random_runs.write(path / "run", "bert-base", "classification")
    random_runs.write(path / "bare", "bert-base", "base", pooling="first")
    return path


def test_every_family_can_be_asked_for():
    assert set(typing.get_args(FamilyName)) == set(FAMILIES)


def test_a_family_goes_with_huggingface_alone(two_runs, tmp_path, capsys):
    said = invoke(capsys, ["export", str(two_runs / "run"), "--to", "onnx", str(tmp_path / "o"), "--family", "bert"])
    assert said.code == 2
    assert said.err.startswith("headstart [conflict]: --family with --to onnx")


def test_what_was_written_is_named(two_runs, tmp_path, capsys):
    said = invoke(capsys, ["export", str(two_runs / "run"), "--to", "huggingface", str(tmp_path / "out"), "--json"])
    assert said.code == 0, said.err
    assert json.loads((tmp_path / "out/config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
    assert json.loads(said.out)


def test_out_and_in_again(two_runs, tmp_path, capsys):
    said = invoke(capsys, ["export", str(two_runs / "run"), "--to", "huggingface", str(tmp_path / "out")])
    assert said.code == 0, said.err
    assert "BertForSequenceClassification; README.md, config.json, model.safetensors" in said.out
    said = invoke(capsys, ["import", str(tmp_path / "out"), "--out", str(tmp_path / "run"), "--length", "16", "--json"])
    result = json.loads(said.out)
    assert result["imported"]["family"] == "bert"
    assert load(tmp_path / "run").config.length == 16
    again = invoke(capsys, ["import", str(tmp_path / "out"), "--out", str(tmp_path / "run")])
    assert again.code == 2
    assert str(tmp_path / "run") in again.err  # it was another length
    again = invoke(capsys, ["import", str(tmp_path / "out"), "--out", str(tmp_path / "run"), "--length", "16"])
    assert again.code == 0
    assert "nothing to do" in again.err + again.out
    assert invoke(capsys, ["runs", str(tmp_path), "--json"]).code == 0
    weights = tmp_path / "run/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    again = invoke(capsys, ["import", str(tmp_path / "out"), "--out", str(tmp_path / "run"), "--length", "16"])
    assert again.code == 3
    assert "nothing to do" not in again.err + again.out


def test_the_same_checkpoint_gives_the_same_run_to_the_byte(two_runs, tmp_path, capsys):
    invoke(capsys, ["export", str(two_runs / "run"), "--to", "huggingface", str(tmp_path / "out")])
    for name in ("a", "b"):
        assert invoke(capsys, ["import", str(tmp_path / "out"), "--out", str(tmp_path / name)]).code == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path


def test_a_base_without_a_head_embeds_and_is_started_from_and_predicts_nothing(two_runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    invoke(capsys, ["export", str(two_runs / "bare"), "--to", "huggingface", str(tmp_path / "out")])
    said = invoke(capsys, ["import", str(tmp_path / "out"), "--out", str(tmp_path / "base")])
    assert "does not predict masks" in said.err
    base = str(tmp_path / "base")
    text = tmp_path / "texts.txt"
    text.write_text("le livre est long\n")
    assert len(json.loads(invoke(capsys, ["embed", base, str(text)]).out)["vector"]) == 16
    for verb in (
        ["evaluate", base, "--data", str(text)],
        ["predict", base, str(text)],
        ["generate", base, "le"],
    ):
        said = invoke(capsys, verb)
        assert said.code == 2
        assert "is a base without a head" in said.err
        assert "`headstart embed` serves it;" in said.err
    train = str(tiny_runs.files()["classification", "train"])
    flags = ["--steps", "2", "--length", "16", "--device", "cpu", "--precision", "fp32", "--threads", "1"]
    said = invoke(capsys, ["finetune", "--train", train, "--start", base, "--out", str(tmp_path / "tuned"), *flags])
    assert said.code == 0, said.err
    assert "2 tensors made anew" in said.err  # the classifier's alone: the pooler came with the base
    said = invoke(capsys, ["pretrain", "--corpus", str(tiny_runs.files()["corpus"]), "--objective", "masked", "--start",
                        base, "--batch-tokens", "64", "--out", str(tmp_path / "more"), *flags])  # fmt: skip
    assert said.code == 0, said.err
