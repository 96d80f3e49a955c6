"""`headstart selftest` kills, compares, and says so when something differs."""

import dataclasses
import json
import re
import tempfile
from typing import get_args

import pytest
from expected_errors import refused

from headstart.cli.options import Common
from headstart.cli.selftest import selftest
from headstart.training.tasks import selftest as machinery
from headstart.training.tasks.selftest import END, STARTING, Kill, SelftestResult


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where the command keeps its runs while it needs them: a function that lists what is there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: [str(path) for path in tmp_path.glob("headstart-*")]


def test_it_kills_and_finds_the_same_bytes(scratch, capsys):
    assert selftest(kill=3, objective="masked-nsp", common=Common(json=True, seed=2)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is True
    assert found["uninterrupted_sha256"] == found["killed_sha256"]
    assert [kill["number"] for kill in found["kills"]] == [1, 2, 3]
    assert found["kills"][-1] == {
        "number": 3, "point": END, "after_step": found["kills"][-1]["after_step"], "resumes_from": found["steps"],
    }  # fmt: skip
    assert (found["same_metrics"], found["leftovers"]) == (True, [])
    assert scratch() == []


KILLS = [Kill(1, STARTING, None, 0), Kill(2, "after:model", 8, 4)]
GOOD = SelftestResult(48, KILLS, "a" * 64, "a" * 64, True, [], 12.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "the final weights are bit-identical"),
        ({"killed_sha256": "b" * 64}, "THE FINAL WEIGHTS DIFFER"),
        ({"same_metrics": False}, "metrics.jsonl is NOT identical"),
        (
            {"leftovers": ["checkpoints/.tmp-step-00000004-1"]},
            "temporary files left behind: checkpoints/.tmp-",
        ),
    ],
)
def test_whatever_differs_is_said_with_exit_1_and_the_runs_are_kept(scratch, capsys, monkeypatch, change, said):
    result = dataclasses.replace(GOOD, **change)

    def pretended(kills, objective, seed, machine, directory, on_kill):
        for kill in KILLS:
            on_kill(kill)
        return result

    monkeypatch.setattr(machinery, "selftest", pretended)
    assert selftest(kill=2, common=Common()) == (1 if change else 0)
    out = capsys.readouterr().out
    assert said in out
    assert result.uninterrupted_sha256 in out
    assert result.killed_sha256 in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "kill 1 before any step while it was starting resumes from step 0"
    assert lines[1] == "kill 2 after step 8 in a save, after the weights resumes from step 4"
    assert [path in out for path in scratch()] == ([True] if change else [])


def test_it_wants_a_kill():
    with refused("bad-value", "kill is 0"):
        selftest(kill=0)


@pytest.mark.slow
@pytest.mark.parametrize("objective", get_args(machinery.SelftestObjective))
def test_twenty_kills_pass(objective, scratch, capsys):
    assert selftest(kill=20, objective=objective, common=Common()) == 0
    assert len(re.findall("^kill ", capsys.readouterr().out, re.MULTILINE)) == 20
    assert scratch() == []
