"""A run knows whether it was trained on pairs of texts, and takes nothing else."""

import json

import pytest
import tiny_runs
from expected_errors import refused

from headstart.inference.evaluate import evaluate_run
from headstart.inference.predict import embed, predict
from headstart.runs.directory import RunDirectory
from headstart.training.tasks.finetune import finetune

FILES = {"pairs": ("pairs", "test"), "classification": ("classification", "test")}


def test_a_run_records_what_it_was_trained_on():
    assert RunDirectory(tiny_runs.path_of("pairs")).read_config().pairs
    assert not RunDirectory(tiny_runs.path_of("classification")).read_config().pairs


@pytest.mark.parametrize(
    ("kind", "texts", "names"),
    [
        ("pairs", ["un livre"], ["text 1", "text_a", "text_b"]),
        ("classification", ["un livre", ("un livre", "la fin")], ["text 2", "pair"]),
    ],
)
def test_a_text_of_the_other_kind_is_not_predicted(kind, texts, names):
    with refused("mismatch", str(tiny_runs.path_of(kind)), *names):
        list(predict(tiny_runs.run_of(kind), texts, tiny_runs.MACHINE))


@pytest.mark.parametrize("kind", FILES)
def test_rows_of_the_other_kind_are_not_evaluated(kind):
    run = tiny_runs.run_of(kind)
    other = next(name for name in FILES if name != kind)
    assert evaluate_run(run, tiny_runs.files()[FILES[kind]], tiny_runs.MACHINE).count == 30
    with refused("mismatch", str(tiny_runs.path_of(kind))) as error:
        evaluate_run(run, tiny_runs.files()[FILES[other]], tiny_runs.MACHINE)
    assert error.value.where == str(tiny_runs.files()[FILES[other]])


def test_the_base_of_either_embeds_both():
    for kind in FILES:
        assert len(list(embed(tiny_runs.run_of(kind), ["a", ("a", "b")], tiny_runs.MACHINE, "mean"))) == 2


def test_valid_rows_of_the_other_kind_are_refused(tmp_path):
    rows = [{"text": f"texte {n}", "label": str(n % 2)} for n in range(9)]
    (tmp_path / "valid.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with refused("mismatch", "valid.jsonl", "text_a", "text_b"):
        finetune(tiny_runs.files()["pairs", "train"], valid=tmp_path / "valid.jsonl", out=tmp_path / "run")
