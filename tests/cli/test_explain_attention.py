"""`headstart explain attention`: the picture is written, and the numbers are those of the run."""

import io
import json
import sys
import xml.etree.ElementTree as ET

import commands
import numpy as np
import pytest
import tiny_runs
import translators

from headstart.training.attending import attention_of

TEXT = "une belle histoire"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def explain(capsys, run, *arguments):
    flags = ["--device", "cpu", "--precision", "fp32", "--threads", "1"]
    return commands.ask(capsys, ["explain", "attention", str(run), *arguments, *flags])


@pytest.mark.parametrize(
    "kind", ["causal", "masked", "masked-nsp", "classification", "multilabel", "regression"]
)
def test_every_run_is_drawn_and_told_as_json(kind, capsys, tmp_path):
    answer = explain(capsys, tiny_runs.path_of(kind), TEXT, "--json")
    assert answer.code == 0
    found = json.loads(answer.out)
    assert found["out"] == "attention.svg"
    expected = attention_of(tiny_runs.run_of(kind), TEXT, tiny_runs.MACHINE)
    np.testing.assert_allclose(found["maps"][0]["weights"], expected.maps[0].weights, atol=1e-6)
    assert ET.parse(tmp_path / "attention.svg").getroot().tag.endswith("svg")


def test_pairs_and_translations_are_drawn(capsys, tmp_path):
    assert explain(capsys, tiny_runs.path_of("pairs"), TEXT, "--text-b", "un livre").code == 0
    answer = explain(
        capsys, translators.path_of(), "un livre", "--target", "livre un", "--json", "--out", "t.html"
    )
    found = json.loads(answer.out)
    assert [one["kind"] for one in found["maps"]] == ["encoder", "decoder", "cross"]
    assert "".join(token["text"] for token in found["maps"][2]["rows"][1:]).strip() == "livre un"
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")


def test_a_layer_and_a_head_are_one_large_map(capsys, tmp_path):
    explain(capsys, tiny_runs.path_of("causal"), TEXT)
    explain(capsys, tiny_runs.path_of("causal"), TEXT, "--layer", "2", "--head", "1", "--out", "large.svg")
    assert (tmp_path / "attention.svg").read_text().count("<image") == 4
    large = (tmp_path / "large.svg").read_text()
    assert large.count("<image") == 1
    assert "layer 2, head 1" in large


def test_where_it_was_written_and_what_was_cut_are_told(capsys):
    answer = explain(capsys, tiny_runs.path_of("causal"), "livre " * 40)
    assert answer.out.splitlines() == [
        "causal run: self 2 layers × 2 heads over 16 tokens",
        "wrote attention.svg",
    ]
    assert "the text is longer: 16 tokens of it are shown" in answer.err


def test_the_text_may_come_from_standard_input(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"une fin\n")))
    found = json.loads(explain(capsys, tiny_runs.path_of("causal"), "-", "--json").out)
    assert "".join(token["text"] for token in found["maps"][0]["rows"][1:]) == "une fin"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([TEXT, "--layer", "3"], "give --layer 1 to 2"),
        ([TEXT, "--head", "0"], "give --head 1 to 2"),
        ([TEXT, "--out", "a.png"], "give an .svg or an .html"),
        ([TEXT, "--out", "nowhere/a.svg"], "cannot be written"),
        ([TEXT, "--target", "b"], "writes no target"),
        ([TEXT, "--most-tokens", "2"], "give 8 to 256"),
    ],
)
def test_what_cannot_be_drawn_exits_2_and_writes_nothing(arguments, said, capsys, tmp_path):
    answer = explain(capsys, tiny_runs.path_of("causal"), *arguments)
    assert answer.code == 2
    assert said in answer.err
    assert not list(tmp_path.iterdir())


def test_what_is_no_run_exits_2(capsys):
    assert explain(capsys, "there-is-none", TEXT).code == 2
