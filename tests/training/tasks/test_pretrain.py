"""`--corpus F=WEIGHT`: recorded in the run, refused when it changes, the same bytes after a kill."""

import signal

import commands
import pytest
from commands import Place, written

from headstart.runs.directory import RunDirectory


@pytest.fixture
def place(tmp_path, monkeypatch):
    place = Place(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(place.cache))
    lines = (place.path / "corpus.txt").read_text().splitlines()
    (place.path / "a.txt").write_text("\n".join(lines[:30]))
    (place.path / "b=2.txt").write_text("\n".join(lines[30:]))
    return place


@pytest.fixture
def ask(capsys):
    return lambda command: commands.ask(capsys, command)


def command(place, *corpus, more=()):
    base = place.command(*more)
    return [*base[:2], *(str(place.path / file) for file in corpus), *base[3:]]


@pytest.mark.parametrize("objective", ["causal", "masked", "masked-nsp"])
def test_weights_are_recorded_and_refused_when_they_change(place, ask, objective):
    more = ("--objective", objective, "--length", 48)
    answer = ask(command(place, "a.txt=2", "b=2.txt", more=more))
    assert answer.code == 0, answer.err
    data = RunDirectory(place.run).read_config().data
    assert data.corpus == [str(place.path / "a.txt"), str(place.path / "b=2.txt")]
    assert data.weights == [2.0, 1.0]
    assert "nothing to do" in ask(command(place, "a.txt=2.0", "b=2.txt", more=more)).err
    answer = ask(command(place, "a.txt=3", "b=2.txt", more=more))
    assert answer.code == 2
    assert "headstart [changed]: " in answer.err
    assert "data.weights was [2.0, 1.0], is [3.0, 1.0]" in answer.err


def test_equal_weights_of_one_are_no_weights(place, ask):
    assert ask(command(place, "a.txt=1", "b=2.txt")).code == 0
    assert RunDirectory(place.run).read_config().data.weights == []
    assert "nothing to do" in ask(command(place, "a.txt", "b=2.txt")).err


def test_an_epoch_is_longer_by_what_weighs_more(place, ask):
    steps = {}
    for weight in (1, 3):
        out = place.path / f"run-{weight}"
        epoch = [*command(place, f"a.txt={weight}", "b=2.txt", more=("--out", out)), "--epochs", "1"]
        at = epoch.index("--steps")
        assert ask(epoch[:at] + epoch[at + 2 :]).code == 0
        steps[weight] = RunDirectory(out).read_config().loop.steps
    assert 1.7 < steps[3] / steps[1] < 2.3  # the two files are of about one size: 3 + 1 against 1 + 1


def test_a_killed_run_on_weighted_corpora_comes_to_the_same_bytes(place, ask):
    line = command(place, "a.txt=2", "b=2.txt=0.5")
    assert ask(line).code == 0
    place.run.rename(place.path / "peaceful")
    environment = {"HEADSTART_CACHE": str(place.cache), "HEADSTART_FAULT": "step@5"}
    child = commands.forked.start(commands.COMMAND, *line, output=place.log, environment=environment)
    assert commands.end(child) == -signal.SIGKILL
    assert ask(line).code == 0
    assert written(place.run) == written(place.path / "peaceful")


def test_few_documents_of_different_weight_need_valid(place, ask):
    (place.path / "a.txt").write_text("un livre très long\n" * 3)
    (place.path / "b=2.txt").write_text("la fin était belle\n" * 3)
    answer = ask(command(place, "a.txt=2", "b=2.txt"))
    assert answer.code == 2
    assert "give --valid" in answer.err
