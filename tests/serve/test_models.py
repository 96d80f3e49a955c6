"""Runs and studies that are served, by name and by what they can do."""

import pytest
import tiny_runs
from expected_errors import refused

from headstart.serve.errors import RequestError
from headstart.serve.models import Models


@pytest.fixture
def models():
    kinds = ("causal", "classification", "char")
    return Models.at([tiny_runs.path_of(kind) for kind in kinds], tiny_runs.MACHINE)


def test_a_name_finds_its_run_and_one_ability_its_only_run(models):
    assert models.run("classification", "classify").name == "classification"
    assert models.run(None, "generate").name == "causal"


@pytest.mark.parametrize(
    ("name", "ability", "status"),
    [
        ("nobody", "classify", 404),
        ("causal", "classify", 400),
        (None, "classify", 400),
        (None, "translate", 400),
    ],
)
def test_a_run_that_is_not_there_or_cannot_or_is_one_of_two_is_refused(models, name, ability, status):
    with pytest.raises(RequestError) as caught:
        models.run(name, ability)
    assert caught.value.status == status


def test_a_run_is_loaded_once_and_when_it_is_wanted(models):
    run = models.runs["causal"]
    assert not run.is_loaded
    assert run.loaded() is run.loaded()
    assert run.is_loaded


def test_what_is_known_of_a_run_needs_no_weights(models):
    about = models.runs["classification"].about()
    model = tiny_runs.run_of("classification").model
    assert about["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert about["start_run"] == "causal"
    assert about["labels"] == ["non", "oui"]
    assert about["loaded"] is False


def test_two_of_one_name_are_told_apart():
    path = tiny_runs.path_of("causal")
    assert list(Models.at([path, path, path], tiny_runs.MACHINE).runs) == ["causal", "causal-2", "causal-3"]


def test_nothing_to_serve_is_refused():
    with refused("missing"):
        Models.at([], tiny_runs.MACHINE)


def test_a_study_that_is_not_there_is_404(models):
    with pytest.raises(RequestError) as caught:
        models.report("nobody")
    assert caught.value.status == 404
