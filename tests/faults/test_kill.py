"""A training that is killed (SIGKILL) at any moment and started again ends in the same bytes."""

import json
import os
import signal
import time

import forked
import pytest
import small
import torch
from commands import Workspace, exit_code_of, run_files, steps_logged, wait_until

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
        self.workspace = Workspace(directory).fill()
        self.verb = "finetune" if kind == "classification" else "pretrain"
        objective = () if kind == "classification" else ("--objective", kind)
        self.settings = (*SETTINGS, "--steps", 24, *objective, *more)

    def start(self, run, fault="", **options):
        return self.workspace.start(*self.settings, "--out", run, verb=self.verb, fault=fault, **options)

    def exit_code_of(self, run, fault=""):
        """The exit code of one that nobody stops from outside."""
        return exit_code_of(self.start(run, fault))

    def kill(self, run, point, draws):
        """From outside: while it starts, or some steps further than its last checkpoint."""
        child = self.start(run)
        if point == STARTING:
            time.sleep(draws.uniform(0, 0.4))
        else:
            found, _ = checkpoint.latest(run / "checkpoints")
            goal = (found.step if found else 0) + int(draws.integers(1, 5))
            wait_until(lambda: steps_logged(run) >= goal, child)
            time.sleep(draws.uniform(0, 0.04))
        child.kill()
        assert exit_code_of(child) == -signal.SIGKILL


def everything_in(run):
    """Each file of a run and what is in it; the lock names the process that held it, the cost is by the clock."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in ("lock", "cost.json")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def check_kills(directory, kind, points, seed, *more):
    attempts, log = Attempts(directory, kind, *more), directory / "log"
    peaceful, killed = directory / "peaceful", directory / "killed"
    assert attempts.exit_code_of(peaceful) == 0, log.read_text()
    draws = stream(seed, "kills")
    for point in points:
        if point in (STARTING, MOMENT):
            attempts.kill(killed, point, draws)
        else:
            most = {"step": 5, "after:model": 3, "after:rename": 3}.get(point, 1)
            fault = f"{point}@{draws.integers(1, most + 1)}"
            assert attempts.exit_code_of(killed, fault) == -signal.SIGKILL, f"{fault}: {log.read_text()}"
        assert checkpoint.latest(killed / "checkpoints")[1] == []
    assert attempts.exit_code_of(killed) == 0, log.read_text()
    found, wanted = everything_in(killed), everything_in(peaceful)
    assert sorted(found) == sorted(wanted)  # nothing that a killed one left aside is there
    assert found == wanted
    return json.loads(found["result.json"])


# Each objective dies at some of the points; together they die at all of them. The last checkpoint alone is
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
    points = [MOMENT, "after:model", "between:renames", "before:result"]
    more = ("--steps", 100, "--patience", 2, "--evaluate-every", 4, "--learning-rate", 0.02)
    result = check_kills(tmp_path, "classification", points, 2, *more, "--positions", "sinusoidal")
    assert result["stopped_early"]
    assert 0 < result["best_step"] == result["step"] - 8


def test_no_place_to_die_at_is_left_out():
    assert {point for share in SHARES.values() for point in share} == {
        *checkpoint.POINTS, *AT_THE_END, "step", MOMENT, STARTING,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", small.KINDS)
def test_twenty_kills_change_nothing(tmp_path, kind):
    draws = stream(small.KINDS.index(kind), "places")
    early = [point for point in checkpoint.POINTS if point != "between:renames"]
    points = [*early, "step", *early, *[MOMENT] * 5, STARTING]
    last = ["between:renames", *AT_THE_END]
    check_kills(tmp_path, kind, [*draws.permutation(points), *last], 2, "--steps", 160)


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
    assert attempts.exit_code_of(peaceful) == 0
    child = attempts.start(killed, program=SLOW_WRITER)
    wait_until(lambda: (killed / "checkpoints/step-00000004").exists(), child)
    os.kill(child.pid, signal.SIGTERM)
    time.sleep(0.05)
    wait_until(lambda: list(killed.glob("checkpoints/.tmp-*/model.safetensors")), child)
    child.kill()
    assert exit_code_of(child) == -signal.SIGKILL
    found, passed_over = checkpoint.latest(killed / "checkpoints")
    assert (found.step, passed_over) == (4, [])
    assert attempts.exit_code_of(killed) == 0
    assert run_files(killed) == run_files(peaceful)


SAVE_AGAIN = """
import sys, pathlib, torch
from headstart.runs.checkpoint import save
for number in (1, 2):
    tensors = {"a": torch.full((9,), float(number))}
    save(pathlib.Path(sys.argv[1]), 5, tensors, {}, {"step": 5, "number": number}, {}, 1)
"""


@pytest.mark.parametrize(("point", "number"), [("before:rename@2", 1), ("between:renames", 1), ("after:rename@2", 2)])
def test_killed_while_a_checkpoint_is_replaced_one_of_the_two_is_there(tmp_path, point, number):
    """The only checkpoint that is kept is saved again, as it is after an evaluation."""
    run = tmp_path / "run"
    code = forked.run(SAVE_AGAIN, run, output=tmp_path / "log", environment={"HEADSTART_FAULT": point})
    assert code == -signal.SIGKILL
    checkpoint.clean(run)
    found, passed_over = checkpoint.latest(run)
    assert (found.step, found.state["number"], passed_over) == (5, number, [])
    checkpoint.save(run, 6, {"a": torch.zeros(9)}, {}, {"step": 6}, {}, 1)
    assert [path.name for path in run.iterdir()] == ["step-00000006"]
