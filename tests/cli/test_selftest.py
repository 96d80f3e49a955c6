"""`headstart selftest` kills, compares, and says so when something differs."""

import dataclasses
import json
import re
import tempfile

import pytest
import torch

from headstart.cli.options import Common
from headstart.cli.selftest import _PLACES, selftest
from headstart.errors import UserError
from headstart.training import checkpoint
from headstart.training import selftest as machinery
from headstart.training.machine import Machine
from headstart.training.selftest import END, MOMENT, PLACES, STARTING, Kill, Outcome, plan


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
        "number": 3, "place": END, "after_step": found["kills"][-1]["after_step"], "goes_on_from": found["steps"],
    }  # fmt: skip
    assert (found["same_metrics"], found["leftovers"]) == (True, [])
    assert scratch() == []


KILLS = [Kill(1, STARTING, None, 0), Kill(2, "after:model", 8, 4)]
GOOD = Outcome(48, KILLS, "a" * 64, "a" * 64, True, [], 12.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "the final weights are the same, to the byte"),
        ({"killed_sha256": "b" * 64}, "THE FINAL WEIGHTS DIFFER"),
        ({"same_metrics": False}, "metrics.jsonl is NOT the same"),
        (
            {"leftovers": ["checkpoints/.tmp-step-00000004-1"]},
            "left behind by what was killed: checkpoints/.tmp-",
        ),
    ],
)
def test_whatever_differs_is_said_with_exit_1_and_the_runs_are_kept(
    scratch, capsys, monkeypatch, change, said
):
    outcome = dataclasses.replace(GOOD, **change)

    def pretended(kills, objective, seed, machine, directory, on_kill):
        for kill in KILLS:
            on_kill(kill)
        return outcome

    monkeypatch.setattr(machinery, "selftest", pretended)
    assert selftest(kill=2, common=Common()) == (1 if change else 0)
    out = capsys.readouterr().out
    assert said in out
    assert outcome.uninterrupted_sha256 in out
    assert outcome.killed_sha256 in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "kill 1 before any step while it was starting goes on from step 0"
    assert lines[1] == "kill 2 after step 8 in a save, after the weights goes on from step 4"
    assert [path in out for path in scratch()] == ([True] if change else [])


@pytest.mark.slow
def test_a_run_that_goes_on_from_other_weights_is_found_out(tmp_path):
    """Between two of its lives somebody changes one number of its checkpoint, checksums and all."""

    def meddle(kill):
        directory = tmp_path / "killed/checkpoints"
        found, _ = checkpoint.latest(directory)
        for tensor in (*found.model.values(), *found.optimizer.values()):
            tensor.view(-1)[0] += 1e-3
        facts = {key: found.manifest[key] for key in ("machine", "data", "tokenizer")}
        checkpoint.save(directory, found.step, found.model, found.optimizer, found.state, facts)

    machine = Machine(torch.device("cpu"), "fp32", 1)
    outcome = machinery.selftest(1, "causal", 0, machine, tmp_path, meddle)
    assert outcome.kills[0].goes_on_from > 0
    assert not outcome.passed
    assert outcome.uninterrupted_sha256 != outcome.killed_sha256
    assert outcome.leftovers == []


@pytest.mark.parametrize("kills", [1, 2, 3, 9, 10, 20, 50])
def test_the_plan_has_each_stage_moments_and_the_end(kills):
    blows = plan(kills, seed=3)
    places = [blow.place for blow in blows]
    assert len(places) == kills
    assert plan(kills, seed=3) == blows
    assert kills == 1 or (places[-1], places.count(END)) == (END, 1)
    if kills >= 10:
        assert set(PLACES) <= set(places)
        assert {STARTING, MOMENT} & set(places)
        assert plan(kills, seed=4) != blows
    assert set(places) <= set(_PLACES)


def test_it_wants_a_kill():
    with pytest.raises(UserError, match="give 1 or more"):
        selftest(kill=0)


@pytest.mark.slow
@pytest.mark.parametrize("objective", machinery.OBJECTIVES)
def test_twenty_kills_pass(objective, scratch, capsys):
    assert selftest(kill=20, objective=objective, common=Common()) == 0
    assert len(re.findall("^kill ", capsys.readouterr().out, re.MULTILINE)) == 20
    assert scratch() == []
