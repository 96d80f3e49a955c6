"""Runs under a directory, in a line each."""

import shutil

import pytest
import tiny_runs
from expected_errors import refused

from headstart.runs.listing import list_runs


@pytest.fixture
def runs(tmp_path):
    for kind in ("causal", "classification"):
        shutil.copytree(tiny_runs.path_of(kind), tmp_path / "runs" / kind)
    return tmp_path / "runs"


def test_a_start_that_is_listed_too_is_named(runs):
    causal, classifier = list_runs(runs)
    assert (causal.name, causal.state, causal.start) == ("causal", "finished", "scratch")
    assert (classifier.name, classifier.state, classifier.start) == ("classification", "finished", "causal")
    assert (causal.step, causal.steps, causal.width, causal.depth) == (4, 4, 16, 2)
    shutil.rmtree(runs / "causal")
    assert list_runs(runs)[0].start == causal.digest[:12]


def test_parameters_are_those_of_the_model(runs):
    for run in list_runs(runs):
        model = tiny_runs.run_of(run.name).model
        assert run.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_without_a_result_it_is_unfinished_at_its_last_checkpoint(runs):
    (runs / "causal" / "result.json").unlink()
    (runs / "causal" / "metrics.jsonl").write_text(
        '{"event": "valid", "step": 2, "loss": 3.5}\n{"event": "valid", "step": 4, "loss": 2.5}\n{"step": 5'
    )
    run = list_runs(runs)[0]
    assert (run.state, run.step, run.valid) == ("unfinished", 4, {"loss": 2.5})


@pytest.mark.parametrize("name", ["config.toml", "tokenizer.json", "weights.safetensors"])
def test_a_run_that_lacks_a_file_is_broken_and_says_which(runs, name):
    (runs / "causal" / name).unlink()
    run = list_runs(runs)[0]
    assert run.state == "broken"
    assert name in run.reason


def test_what_lies_inside_a_run_or_is_hidden_is_not_listed(runs):
    shutil.copytree(runs / "causal", runs / "causal" / "inner")
    shutil.copytree(runs / "causal", runs / ".hidden" / "run")
    (runs / "notes").mkdir()
    assert [run.name for run in list_runs(runs)] == ["causal", "classification"]


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with refused("no-file", "nowhere"):
        list_runs(tmp_path / "nowhere")
