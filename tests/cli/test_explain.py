"""`headstart explain`: the picture is written, is well-formed, and shows what the model really uses."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from headstart.cli.main import run


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
    found = explain(
        capsys, "mask", "--length", "3", "--direction", "bidirectional", "--right-padding", "1", *out
    )
    assert found["allowed"] == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    found = explain(capsys, "mask", "--length", "2", "--direction", "bidirectional", *out)
    assert found["allowed"] == [[1, 1], [1, 1]]


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
    "arguments",
    [
        ["mask", "--length", "0"],
        ["mask", "--length", "4", "--left-padding", "5"],
        ["mask", "--length", "4", "--documents", "1,2"],
        ["positions", "--width", "0"],
        ["cost", "--lengths", "64,16"],
        ["cost", "--lengths", "16,many"],
        ["cost", "--width", "9", "--heads", "2"],
        ["mask", "--out", "/nowhere/mask.svg"],
    ],
)
def test_what_cannot_be_drawn_exits_2(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["explain", *arguments]) == 2
    assert "headstart: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
