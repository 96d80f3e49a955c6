"""A training that is killed (SIGKILL) at any moment and started again ends in the same bytes."""

import json
import os
import signal
import time

import forked
import pytest
import small
import torch
from commands import Place, end, steps_told, wait_until, written

from headstart.randomness import stream
from headstart.runs import checkpoint

SETTINGS = (
    "--attention-dropout", 0.1, "--average", "ema", "--spike-factor", 9, "--evaluate-every", 8, "--save-every", 4,
)  # fmt: skip
STARTING, MOMENT = "starting", "moment"
# Reached once all steps are made: the weights are not yet in their place, or no result tells of them.
AT_THE_END = ["after:weights", "before:result"]


class Attempts:
    """The same command again and again."""

    def __init__(self, directory, kind, *more):
        self.place = Place(directory).fill()
        self.verb = "finetune" if kind == "classification" else "pretrain"
        objective = () if kind == "classification" else ("--objective", kind)
        self.settings = (*SETTINGS, "--steps", 24, *objective, *more)

    def start(self, run, fault="", **options):
        return self.place.start(*self.settings, "--out", run, verb=self.verb, fault=fault, **options)

    def end(self, run, fault=""):
        """The exit code of one that nobody stops from outside."""
        return end(self.start(run, fault))

    def kill(self, run, place, draws):
        """From outside: while it starts, or some steps further than its last checkpoint."""
        child = self.start(run)
        if place == STARTING:
            time.sleep(draws.uniform(0, 0.4))
        else:
            found, _ = checkpoint.latest(run / "checkpoints")
            goal = (found.step if found else 0) + int(draws.integers(1, 5))
            wait_until(lambda: steps_told(run) >= goal, child)
            time.sleep(draws.uniform(0, 0.04))
        child.kill()
        assert end(child) == -signal.SIGKILL


def everything_in(run):
    """Each file of a run and what is in it; the lock names the process that held it, the cost is by the clock."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in ("lock", "cost.json")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def check_kills(directory, kind, places, seed, *more):
    attempts, log = Attempts(directory, kind, *more), directory / "log"
    peaceful, killed = directory / "peaceful", directory / "killed"
    assert attempts.end(peaceful) == 0, log.read_text()
    draws = stream(seed, "kills")
    for place in places:
        if place in (STARTING, MOMENT):
            attempts.kill(killed, place, draws)
        else:
            most = {"step": 5, "after:model": 3, "after:rename": 3}.get(place, 1)
            fault = f"{place}@{draws.integers(1, most + 1)}"
            assert attempts.end(killed, fault) == -signal.SIGKILL, f"{fault}: {log.read_text()}"
        assert checkpoint.latest(killed / "checkpoints")[1] == []
    assert attempts.end(killed) == 0, log.read_text()
    found, wanted = everything_in(killed), everything_in(peaceful)
    assert sorted(found) == sorted(wanted)  # nothing that a killed one left aside is there
    assert found == wanted
    return json.loads(found["result.json"])


# Each objective dies at some of the places; together they die at all of them. The last checkpoint alone is
# replaced, when it has been evaluated: so a death between two renames comes near the end.
SHARES = {
    "causal": [MOMENT, "after:state", "between:renames", "before:result"],
    "masked": ["after:model", "after:manifest", MOMENT, STARTING, "after:weights"],
    "masked-nsp": ["step", "before:rename", MOMENT, "after:rename"],
    "classification": [MOMENT, "after:rename", "between:renames", "before:result"],
}


@pytest.mark.parametrize("kind", small.KINDS)
def test_killed_and_started_again_it_ends_in_the_same_bytes(tmp_path, kind):
    assert check_kills(tmp_path, kind, SHARES[kind], 1)["step"] == 24


@pytest.mark.slow
def test_an_early_stop_goes_back_to_the_same_best(tmp_path):
    places = [MOMENT, "after:model", "between:renames", "before:result"]
    more = ("--steps", 100, "--patience", 2, "--evaluate-every", 4, "--learning-rate", 0.02)
    result = check_kills(tmp_path, "classification", places, 2, *more, "--positions", "sinusoidal")
    assert result["stopped_early"]
    assert 0 < result["best_step"] == result["step"] - 8


def test_no_place_to_die_at_is_left_out():
    assert {place for share in SHARES.values() for place in share} == {
        *checkpoint.POINTS, *AT_THE_END, "step", MOMENT, STARTING,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", small.KINDS)
def test_twenty_kills_change_nothing(tmp_path, kind):
    draws = stream(small.KINDS.index(kind), "places")
    early = [place for place in checkpoint.POINTS if place != "between:renames"]
    places = [*early, "step", *early, *[MOMENT] * 5, STARTING]
    last = ["between:renames", *AT_THE_END]
    check_kills(tmp_path, kind, [*draws.permutation(places), *last], 2, "--steps", 160)


SLOW_WRITER = """
import sys, time
from headstart.cli.main import run
from headstart.runs import checkpoint
write = checkpoint.write_tensors
def slow(path, tensors):
    write(path, tensors)
    if (path.parent.parent / "step-00000004").exists():
        time.sleep(30)
checkpoint.write_tensors = slow
sys.exit(run(sys.argv[1:]))
"""


def test_a_grace_shorter_than_the_save_leaves_the_old_checkpoint(tmp_path):
    """SIGTERM, and SIGKILL 50 ms later in the middle of the save that SIGTERM asked for."""
    attempts, peaceful, killed = Attempts(tmp_path, "causal"), tmp_path / "peaceful", tmp_path / "killed"
    assert attempts.end(peaceful) == 0
    child = attempts.start(killed, program=SLOW_WRITER)
    wait_until(lambda: (killed / "checkpoints/step-00000004").exists(), child)
    os.kill(child.pid, signal.SIGTERM)
    time.sleep(0.05)
    wait_until(lambda: list(killed.glob("checkpoints/.tmp-*/model.safetensors")), child)
    child.kill()
    assert end(child) == -signal.SIGKILL
    found, passed_over = checkpoint.latest(killed / "checkpoints")
    assert (found.step, passed_over) == (4, [])
    assert attempts.end(killed) == 0
    assert written(killed) == written(peaceful)


SAVE_AGAIN = """
import sys, pathlib, torch
from headstart.runs.checkpoint import save
for number in (1, 2):
    tensors = {"a": torch.full((9,), float(number))}
    save(pathlib.Path(sys.argv[1]), 5, tensors, {}, {"step": 5, "number": number}, {}, 1)
"""


@pytest.mark.parametrize(("place", "number"), [("before:rename@2", 1), ("between:renames", 1), ("after:rename@2", 2)])
def test_killed_while_a_checkpoint_is_replaced_one_of_the_two_is_there(tmp_path, place, number):
    """The only checkpoint that is kept is saved again, as it is after an evaluation."""
    run = tmp_path / "run"
    code = forked.run(SAVE_AGAIN, run, output=tmp_path / "log", environment={"HEADSTART_FAULT": place})
    assert code == -signal.SIGKILL
    checkpoint.clean(run)
    found, passed_over = checkpoint.latest(run)
    assert (found.step, found.state["number"], passed_over) == (5, number, [])
    checkpoint.save(run, 6, {"a": torch.zeros(9)}, {}, {"step": 6}, {}, 1)
    assert [path.name for path in run.iterdir()] == ["step-00000006"]
