"""A translator that is killed (SIGKILL) while it is trained, anywhere, ends in the same bytes."""

import json
import signal
import time

import forked
import pytest
import small
from commands import COMMAND, exit_code_of, steps_logged, wait_until

from headstart.randomness import stream
from headstart.runs import checkpoint

MOMENT, STARTING = "moment", "starting"
AT_THE_END = ["after:weights", "before:result"]


class Attempts:
    """The same command again and again."""

    def __init__(self, directory, steps, more):
        self.directory, self.log = directory, directory / "log"
        texts = small.sentences(80, seed=6)
        for name, part in (("train", texts[:60]), ("valid", texts[60:68])):
            lines = [f"{text}\t{' '.join(text.split()[::-1])}" for text in part]
            (directory / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        shape = {
            "width": 16,
            "ffn": 24,
            "heads": 2,
            "depth": 1,
            "decoder-depth": 2,
            "dropout": 0.1,
            "vocab": 320,
        }
        settings = {
            **shape, "length": 32, "batch-tokens": 200, "accumulate": 2, "average": "ema", "spike-factor": 9,
            "evaluate-every": 8, "save-every": 4, "steps": steps, "device": "cpu", "precision": "fp32", "threads": 1,
            "train": directory / "train.tsv", "valid": directory / "valid.tsv", "beam": 2,
        } | more  # fmt: skip
        flags = [str(word) for key, value in settings.items() for word in (f"--{key}", value) if word is not None]
        self.command = ["finetune", "--task", "translation", *flags]

    def start(self, run, fault=""):
        return forked.start(
            COMMAND, *self.command, "--out", run, output=self.log, environment={"HEADSTART_FAULT": fault}
        )

    def kill(self, run, point, draws):
        """From outside: while it starts, or some steps further than its last checkpoint."""
        child = self.start(run)
        if point == STARTING:
            time.sleep(draws.uniform(0, 0.4))
        else:
            found, _ = checkpoint.latest(run / "checkpoints")
            goal = (found.step if found else 0) + int(draws.integers(1, 5))
            wait_until(lambda: steps_logged(run) >= goal, child)
        child.kill()
        assert exit_code_of(child) == -signal.SIGKILL


def everything_in(run):
    # The lock names the process that held it, and the cost is by the clock.
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in ("lock", "cost.json")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def check_kills(directory, points, seed, steps, more):
    attempts = Attempts(directory, steps, more)
    peaceful, killed = directory / "peaceful", directory / "killed"
    assert exit_code_of(attempts.start(peaceful)) == 0, attempts.log.read_text()
    draws = stream(seed, "kills")
    for point in points:
        if point in (STARTING, MOMENT):
            attempts.kill(killed, point, draws)
        else:
            most = {"step": 5, "after:model": 3, "after:rename": 3}.get(point, 1)
            code = exit_code_of(attempts.start(killed, f"{point}@{draws.integers(1, most + 1)}"))
            assert code == -signal.SIGKILL, f"{point}: {attempts.log.read_text()}"
    assert exit_code_of(attempts.start(killed)) == 0, attempts.log.read_text()
    found, wanted = everything_in(killed), everything_in(peaceful)
    assert sorted(found) == sorted(wanted)  # nothing that a killed one left aside is there
    assert found == wanted
    return json.loads(found["result.json"])


@pytest.mark.parametrize(
    ("more", "points"),
    [
        ({}, [MOMENT]),
        ({"vocabularies": "separate", "valid-bleu": None}, ["before:result"]),
    ],
)
def test_killed_and_started_again_it_ends_in_the_same_bytes(tmp_path, more, points):
    result = check_kills(tmp_path, points, 1, 16, more)
    assert result["step"] == 16
    assert "bleu" in result["valid"]


@pytest.mark.slow
def test_an_early_stop_goes_back_to_the_same_best(tmp_path):
    more = {"patience": 2, "evaluate-every": 4, "learning-rate": 0.1}
    result = check_kills(tmp_path, [MOMENT, "after:rename", "before:result"], 2, 100, more)
    assert result["stopped_early"]


@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path):
    draws = stream(3, "places")
    early = [point for point in checkpoint.POINTS if point != "between:renames"]
    points = [*early, "step", *early, *[MOMENT] * 5, STARTING]
    last = ["between:renames", *AT_THE_END]  # the last checkpoint alone is replaced
    check_kills(tmp_path, [*draws.permutation(points), *last], 2, 240, {})
