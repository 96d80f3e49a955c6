"""The steps of pretraining follow what the first trials took, and are kept."""

import dataclasses
import json
import shutil
import tomllib

import checksummed
import pytest
from small_study import MODEL, small_config, write_files

from headstart.study.execution.scheduler import TaskResult
from headstart.study.recipes.timing import Times, share_done
from headstart.study.study import study as run_study

# Half a second for a step, 10 s for the trials from scratch, 20 s for those from a base; 950 s of 1,000 are planned.
FORECAST = {
    "step": 0.5, "phases": 1, "most": 50.0, "bases": 1, "evaluating": 0.0, "from_scratch": 10.0, "from_base": 20.0,
}  # fmt: skip
STEPS = 7


def start(directory, **changes):
    """A directory whose recipe is chosen, but not yet corrected by the time of any trial."""
    directory.mkdir(parents=True, exist_ok=True)
    kept = {"settings": {"pretrain": {"steps": STEPS}}, "sentences": [], "forecast": {**FORECAST, **changes}}
    checksummed.write(directory / "recipe.json", kept)


def run(directory, files, log=lambda line: None):
    config = small_config(files, arms=["tfidf", "scratch", "finetuned"], budgets=[10], seeds=1, time="1000s")
    config = dataclasses.replace(config, pretrain=[dataclasses.replace(config.pretrain[0], steps=0)])
    return run_study(config, out=directory, model=MODEL, device="cpu", log=log)


def steps_of(directory):
    """As the recipe has them, the settings, and the run."""
    recipe = json.loads((directory / "recipe.json").read_text())
    settings = tomllib.loads((directory / "study.toml").read_text())
    result = json.loads((directory / "pretrain" / "causal-s0" / "result.json").read_text())
    assert recipe["forecast"] is None
    return recipe["settings"]["pretrain"]["steps"], settings["pretrain"][0]["steps"], result["steps"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("studies") / "finished"
    start(directory)
    said = []
    return directory, run(directory, files, said.append), said


def test_pretraining_gets_the_time_that_is_left_up_to_the_most_that_is_useful(finished):
    directory, record, said = finished
    assert steps_of(directory) == (50, 50, 50)  # the steps that the recipe began with were 7
    assert {trial.status for trial in record.trials} == {"done"}
    assert sum("50 steps" in line for line in said) == 1


def test_trials_that_take_longer_than_foreseen_leave_fewer_steps(files, tmp_path):
    # What is left to fine-tune takes as many times longer as the trials from scratch did: more than there is.
    start(tmp_path, step=10.0, from_scratch=1e-6, most=1e9)
    run(tmp_path, files)
    assert steps_of(tmp_path) == (25, 25, 25)  # a quarter of the time all the same


def test_a_study_that_is_resumed_keeps_its_steps_and_its_bytes(finished, files, tmp_path):
    directory, record, _ = finished
    copy = shutil.copytree(directory, tmp_path / "copy")
    for name in ("pretrain", "trials/finetuned-b10-s0"):
        shutil.rmtree(copy / name)
    (copy / "study.json").unlink()
    again = run(copy, files)
    assert steps_of(copy) == (50, 50, 50)
    assert again.to_json() == record.to_json()


def test_a_kill_between_the_two_files_that_have_the_steps_is_no_dead_end(finished, files, tmp_path):
    copy = shutil.copytree(finished[0], tmp_path / "copy")
    start(copy)
    shutil.rmtree(copy / "pretrain")
    run(copy, files)
    assert steps_of(copy) == (50, 50, 50)


def test_trials_side_by_side_share_the_time(tmp_path):
    times = Times(tmp_path / "timing.json", 5.0, {"jobs": 2})
    for name, seconds in (("scratch-b10-s0", 6.0), ("scratch-b10-s1", 6.0), ("tfidf-b10-s0", 4.0)):
        times.add(TaskResult(name, None, seconds))
    times.values["seconds"] = 8.0
    assert times.seconds_of("scratch") == pytest.approx(6.0)
    assert times.seconds_of("scratch-causal") == 0.0
    again = Times(tmp_path / "timing.json", 99.0, {"jobs": 1})
    kept = again.values
    assert (kept["preparation"], kept["jobs"], len(kept["trials"])) == (5.0, 1, 3)
    assert 5.0 + kept["seconds"] <= again.spent < 65.0


@pytest.mark.parametrize(
    ("by_operations", "spent", "foreseen", "share"),
    [
        (0.01, 30.0, 120.0, 0.25),  # TF-IDF takes time, and next to no operations
        (0.7, 119.9, 120.0, 0.99),
        (0.7, 121.0, 120.0, 0.7),  # it takes longer than foreseen
        (1.0, 30.0, 120.0, 1.0),
        (0.2, 30.0, 0.0, 0.2),  # nobody has foreseen anything
    ],
)
def test_a_study_whose_time_was_foreseen_is_as_far_as_its_time(by_operations, spent, foreseen, share):
    assert share_done(by_operations, spent, foreseen) == pytest.approx(share)
