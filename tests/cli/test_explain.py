"""`headstart explain`: the picture is written, is well-formed, and shows what the model really uses."""

import io
import json
import sys
import xml.etree.ElementTree as ET

import commands
import numpy as np
import pytest
import tiny_runs
import translators

from headstart.cli.main import run
from headstart.inference.attention_maps import attention_of
from headstart.planning import layers


def explain(capsys, *arguments):
    assert run(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_is_picture(path):
    root = ET.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_the_square_mask_is_drawn(tmp_path, capsys):
    out = tmp_path / "mask.svg"
    found = explain(capsys, "mask", "--length", "12", "--out", str(out))
    assert np.array_equal(found["allowed"], np.tril(np.ones((12, 12))))
    assert_is_picture(out)


def test_padding_and_documents_are_drawn(tmp_path, capsys):
    out = ["--out", str(tmp_path / "mask.svg")]
    found = explain(capsys, "mask", "--length", "4", "--left-padding", "1", *out)
    assert found["allowed"] == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]]
    found = explain(capsys, "mask", "--length", "3", "--documents", "1,2", *out)
    assert found["allowed"] == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    found = explain(capsys, "mask", "--length", "3", "--direction", "bidirectional", "--right-padding", "1", *out)
    assert found["allowed"] == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    found = explain(capsys, "mask", "--length", "2", "--direction", "bidirectional", *out)
    assert found["allowed"] == [[1, 1], [1, 1]]


@pytest.mark.parametrize("arguments", [["mask", "--text", "le livre 本"], ["positions", "--length", "20"]])
def test_a_picture_is_what_its_name_says(arguments, tmp_path, capsys):
    explain(capsys, *arguments, "--out", str(tmp_path / "a.PNG"))
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    explain(capsys, *arguments, "--out", str(tmp_path / "b.png"))
    assert (tmp_path / "a.PNG").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_words_with_markup_are_only_words(tmp_path, capsys):
    out = tmp_path / "mask.svg"
    explain(capsys, "mask", "--text", "<script>alert(1)</script> $x^2 a&b", "--out", str(out))
    assert_is_picture(out)


def test_the_same_data_give_the_same_bytes(tmp_path, capsys):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for out in (first, second):
        explain(capsys, "positions", "--width", "9", "--length", "20", "--out", str(out))
    assert first.read_bytes() == second.read_bytes()
    assert_is_picture(first)


class Disturbed:
    """Layers whose times cross at n = 9; some measurements of attention are disturbed."""

    def __init__(self, disturbed):
        self.calls, self.disturbed = 0, disturbed

    def __call__(self, length, *arguments):
        self.calls += 1
        attention = (1000.0 if self.calls in self.disturbed else 1.0) * length
        return {"attention": attention, "recurrence": 3.0 * length**0.5}


@pytest.mark.parametrize(("disturbed", "is_steady"), [([2], True), ([2, 5], True), ([2, 5, 8, 11, 14], False)])
def test_a_busy_machine_is_measured_again_or_told(disturbed, is_steady, tmp_path, capsys, monkeypatch):
    lengths = ["--lengths", "4,8,16", "--out", str(tmp_path / "cost.svg")]
    monkeypatch.setattr(layers, "measure_layers", Disturbed(disturbed))
    found = explain(capsys, "cost", *lengths)
    assert [bool(row["noisy"]) for row in found["rows"]] == [False, not is_steady, False]
    assert [one["length"] for one in found["crossings"]] == ([pytest.approx(9)] if is_steady else [])
    monkeypatch.setattr(layers, "measure_layers", Disturbed(disturbed))
    assert run(["explain", "cost", *lengths]) == 0
    assert found["unclear"] == ([] if is_steady else ["recurrence"])
    assert ("too noisy" in capsys.readouterr().out) == (not is_steady)


@pytest.mark.slow
def test_the_cost_table_has_paper_and_measurement(tmp_path, capsys):
    out = tmp_path / "cost.svg"
    found = explain(capsys, "cost", "--width", "16", "--lengths", "8,16,32", "--out", str(out))
    assert [row["length"] for row in found["rows"]] == [8, 16, 32]
    assert found["rows"][2]["operations"] == {
        "attention": 32 * 32 * 16,
        "recurrence": 32 * 16 * 16,
        "convolution": 3 * 32 * 16 * 16,
    }
    assert all(row["seconds"]["attention"] > 0 for row in found["rows"])
    assert_is_picture(out)
    assert run(["explain", "cost", "--width", "16", "--lengths", "8,16", "--out", str(out)]) == 0
    assert "n²·d" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("mask --length 0", "[bad-value]: 0 + 0 positions of padding in a length of 0"),
        ("mask --length 4 --left-padding 5", "[bad-value]: 5 + 0 positions of padding in a length of 4"),
        ("mask --length 4 --documents 1,2", "[bad-value]: documents of 1, 2 positions in a length of 4"),
        ("positions --width 0", "[bad-value]: width 0"),
        ("cost --lengths 64,16", "[bad-value]: width 200, kernel 3, heads 2, lengths 64, 16"),
        ("cost --lengths 16,many", "[usage]: "),
        ("cost --width 9 --heads 2", "[bad-value]: width 9, kernel 3, heads 2"),
        ("mask --out mask.pdf", "[unsupported]: mask.pdf"),
        ("positions --out positions", "[unsupported]: positions"),
        ("cost --out cost.jpeg", "[unsupported]: cost.jpeg"),
        ("mask --out /nowhere/mask.svg", "[no-file]: /nowhere/mask.svg"),
    ],
)
def test_what_cannot_be_drawn_exits_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["explain", *arguments.split()]) == 2
    assert capsys.readouterr().err.startswith(f"headstart {message}")
    assert not list(tmp_path.iterdir())


# ---- explain attention: the numbers are those of the run ---------------------------------------------------

TEXT = "une belle histoire"


@pytest.fixture
def attention(tmp_path, monkeypatch, capsys):
    """Runs `explain attention` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    flags = ["--device", "cpu", "--precision", "fp32", "--threads", "1"]
    return lambda run, *words: commands.invoke(capsys, ["explain", "attention", str(run), *words, *flags])


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp", "classification", "multilabel", "regression"])
def test_every_run_is_drawn_and_told_as_json(kind, attention, tmp_path):
    answer = attention(tiny_runs.path_of(kind), TEXT, "--json")
    assert answer.code == 0
    found = json.loads(answer.out)
    assert found["out"] == "attention.svg"
    expected = attention_of(tiny_runs.run_of(kind), TEXT, tiny_runs.MACHINE)
    np.testing.assert_allclose(found["maps"][0]["weights"], expected.maps[0].weights, atol=1e-6)
    assert ET.parse(tmp_path / "attention.svg").getroot().tag.endswith("svg")


def test_pairs_and_translations_are_drawn(attention, tmp_path):
    assert attention(tiny_runs.path_of("pairs"), TEXT, "--text-b", "un livre").code == 0
    answer = attention(translators.path_of(), "un livre", "--target", "livre un", "--json", "--out", "t.html")
    found = json.loads(answer.out)
    assert [one["kind"] for one in found["maps"]] == ["encoder", "decoder", "cross"]
    assert "".join(token["text"] for token in found["maps"][2]["rows"][1:]).strip() == "livre un"
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")


def test_a_layer_and_a_head_are_one_large_map(attention, tmp_path):
    attention(tiny_runs.path_of("causal"), TEXT)
    attention(tiny_runs.path_of("causal"), TEXT, "--layer", "2", "--head", "1", "--out", "large.svg")
    assert (tmp_path / "attention.svg").read_text().count("<image") == 4
    large = (tmp_path / "large.svg").read_text()
    assert large.count("<image") == 1
    assert "layer 2, head 1" in large


def test_where_it_was_written_and_what_was_cut_are_told(attention):
    answer = attention(tiny_runs.path_of("causal"), "livre " * 40)
    assert answer.out.splitlines() == [
        "causal run: self 2 layers × 2 heads over 16 tokens",
        "wrote attention.svg",
    ]
    assert "the text is longer: 16 tokens of it are shown" in answer.err


def test_the_text_may_come_from_standard_input(attention, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"une fin\n")))
    found = json.loads(attention(tiny_runs.path_of("causal"), "-", "--json").out)
    assert "".join(token["text"] for token in found["maps"][0]["rows"][1:]) == "une fin"


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ([TEXT, "--layer", "3"], "[bad-value]", "--layer 1 to 2"),
        ([TEXT, "--head", "0"], "[bad-value]", "--head 1 to 2"),
        ([TEXT, "--out", "a.png"], "[unsupported]: a.png", ".svg or .html"),
        ([TEXT, "--out", "nowhere/a.svg"], "[no-file]: nowhere/a.svg", "--out"),
        ([TEXT, "--target", "b"], "[", "target"),
        ([TEXT, "--most-tokens", "2"], "[bad-value]", "8 to 256"),
    ],
)
def test_attention_that_cannot_be_drawn_exits_2_and_writes_nothing(arguments, code, named, attention, tmp_path):
    answer = attention(tiny_runs.path_of("causal"), *arguments)
    assert answer.code == 2
    assert answer.err.startswith(f"headstart {code}")
    assert named in answer.err
    assert not list(tmp_path.iterdir())


def test_what_is_no_run_exits_2(attention):
    assert attention("there-is-none", TEXT).code == 2
