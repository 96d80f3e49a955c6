"""Whether a base has learned: by hand-made numbers, and of real runs."""

import json
import shutil

import checksummed
import pytest
import tiny_runs

from headstart.demo.corpus import write_demo
from headstart.runs.base_status import base_status, base_warning, judged, slope
from headstart.training.tasks.pretrain import pretrain


def facts(**changes):
    """Of a base that has learned."""
    usual = {
        "steps": 6000,
        "epochs": 12.0,
        "tokens": 4_000_000,
        "loss": 3.89,
        "train_loss": 3.8,
        "slope": -0.25,
    }
    return usual | {"unigram_entropy": 6.86, "bigram_entropy": 5.2} | changes


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "learned"),
        ({"slope": None, "train_loss": None}, "learned"),
        ({"train_loss": 1.0}, "learned"),  # it knows its text by heart, and the language too
        ({"steps": 133, "loss": 6.34, "train_loss": 6.33}, "undertrained"),
        ({"loss": 4.75, "train_loss": 4.7}, "undertrained"),  # hardly better than pairs of tokens
        ({"loss": 4.5, "train_loss": 4.5, "slope": -0.3}, "undertrained"),  # it has only begun
        ({"loss": 7.5, "train_loss": 7.4}, "undertrained"),  # worse than nothing, on any text
        ({"loss": 6.3, "train_loss": 2.86, "slope": 0.3}, "too_little_text"),
        ({"loss": 11.8, "train_loss": 0.1, "slope": 0.8}, "too_little_text"),
        ({"loss": 4.8, "train_loss": 3.9}, "too_little_text"),
    ],
)  # fmt: skip
def test_the_numbers_make_the_status(changes, status):
    found = judged(**facts(**changes))
    assert found.status == status
    assert found.has_learned == (status == "learned")


def test_the_sentence_has_the_numbers_and_what_to_do():
    old = {"steps": 133, "epochs": 3.01, "tokens": 2_894_792, "loss": 6.34, "train_loss": 6.33}
    said = judged(**facts(**old, unigram_entropy=7.01, bigram_entropy=5.23, slope=-0.05)).sentence
    assert said == (
        "The base is undertrained: 133 steps (3.0 epochs of 2,894,792 tokens), held-out loss 6.34 where token "
        "frequencies alone give 7.01 and token pairs 5.23. Give it more time (--time) before concluding."
    )
    said = judged(**facts(loss=7.8, train_loss=2.86)).sentence
    assert said.startswith("The text is too little for this base: 6,000 steps (12.0 epochs of 4,000,000 tokens)")
    assert "7.80" in said
    assert "2.86 on the text that it has read" in said
    assert "--corpus" in said
    assert "still fell by 0.50" in judged(**facts(loss=4.5, slope=-0.5)).sentence
    assert judged(**facts()).sentence.startswith("The base has learned: 6,000 steps")


def test_the_slope_is_that_of_the_second_half_for_each_doubling():
    fall = [(100, 9.0), (200, 7.0), (400, 5.0), (800, 4.5)]
    assert slope(fall) == pytest.approx(-0.5)
    assert slope([(600, 4.0), (1200, 4.3)]) == pytest.approx(0.3)
    assert slope([(100, 9.0), (800, 4.5)]) is None
    assert slope([]) is None


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp"])
def test_a_run_of_a_few_steps_is_undertrained(kind):
    path = tiny_runs.path_of(kind)
    found, result = base_status(path), json.loads((path / "result.json").read_text())
    assert found.status == "undertrained"
    assert found.loss == result["valid"]["masked_loss" if kind == "masked-nsp" else "loss"]
    assert (found.steps, found.tokens) == (result["step"], result["counts"]["train"]["tokens"])
    assert base_warning(path) == f"{path}: {found.sentence}"


def test_earlier_phases_count(tmp_path):
    path = tiny_runs.path_of("causal")
    once, twice = base_status(path), base_status(path, [path])
    assert (twice.steps, twice.tokens) == (2 * once.steps, 2 * once.tokens)
    assert twice.epochs == pytest.approx(once.epochs)


def test_of_other_runs_nothing_is_said(tmp_path):
    assert base_status(tiny_runs.path_of("classification")) is None
    assert base_warning(tmp_path) is None
    assert base_warning(tmp_path / "scratch") is None
    before = tmp_path / "before"  # a run of an earlier version
    shutil.copytree(tiny_runs.path_of("causal"), before)
    result = checksummed.read(before / "result.json")
    del result["entropies"]
    checksummed.write(before / "result.json", result)
    assert base_status(before) is None


def test_a_run_is_judged_by_its_result_and_not_by_its_log(tmp_path):
    shutil.copytree(tiny_runs.path_of("causal"), tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (tmp_path / "run" / "metrics.jsonl").unlink()
    found = base_status(tmp_path / "run")
    assert found == base_status(tiny_runs.path_of("causal"))
    assert found.train_loss == [line["loss"] for line in log if "event" not in line][-1]


def test_tokens_in_random_order_have_no_status(tmp_path):
    run = tmp_path / "run"
    pretrain(
        tiny_runs.files()["corpus"], out=run, steps=1, vocab=300, length=16, batch_tokens=64, shuffled=True,
        model=tiny_runs.SHAPE, machine=tiny_runs.MACHINE,
    )  # fmt: skip
    assert base_status(run) is None


@pytest.mark.slow
@pytest.mark.parametrize(("documents", "steps", "status"), [(0, 5, "undertrained"), (40, 300, "too_little_text")])
def test_five_steps_are_too_few_and_forty_reviews_too_little(documents, steps, status, tmp_path):
    write_demo(tmp_path / "demo", seed=0)
    lines = (tmp_path / "demo" / "unlabelled.txt").read_text().splitlines()
    (tmp_path / "corpus.txt").write_text("\n".join(lines[: documents or len(lines)]) + "\n")
    pretrain(
        tmp_path / "corpus.txt", out=tmp_path / "run", steps=steps, vocab=2_000, length=128, batch_tokens=1_024,
        optimizer="muon", evaluate_every=max(1, steps // 8), machine=tiny_runs.MACHINE,
    )  # fmt: skip
    assert base_status(tmp_path / "run").status == status
