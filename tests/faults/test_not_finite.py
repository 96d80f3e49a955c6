"""A training that leaves the numbers that there are: it ends, and what it writes can be read by anybody."""

import json

import commands
import pytest
from commands import Place


@pytest.fixture
def place(tmp_path, monkeypatch):
    place = Place(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(place.cache))
    return place


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("verb", ["pretrain", "translation"])
@pytest.mark.parametrize("patience", [0, 9])
def test_a_rate_beyond_reason_ends_in_a_result_with_nulls(place, capsys, verb, patience):
    more = ("--learning-rate", 1e30, "--steps", 3, "--evaluate-every", 1, "--patience", patience)
    answer = commands.ask(capsys, place.command(*more, verb=verb))
    assert answer.code == 0, answer.err
    assert "not finite" in answer.out
    result = strict((place.run / "result.json").read_text())
    assert result["valid"]["loss"] is None
    assert result["best_step"] == -1
    again = commands.ask(capsys, [*place.command(*more, verb=verb), "--json"])
    assert again.code == 0, again.err
    assert strict(again.out)["valid"]["loss"] is None
    listed = commands.ask(capsys, ["runs", str(place.path)])
    assert (listed.code, "finished" in listed.out) == (0, True), listed.err


def test_the_first_finite_score_is_the_best_so_far(place, capsys, monkeypatch):
    given = iter([float("nan"), 3.0, float("nan"), 2.0])
    monkeypatch.setattr("headstart.training.loop.cost", lambda values, measure: next(given))
    more = ("--steps", 4, "--evaluate-every", 1, "--patience", 3)
    answer = commands.ask(capsys, place.command(*more))
    assert answer.code == 0, answer.err
    assert json.loads((place.run / "result.json").read_text())["best_step"] == 4
