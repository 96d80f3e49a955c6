"""Runs from files: pretrain, swap the head, fine-tune; each is one call, and the second call goes on."""

import json

import numpy as np
import pytest
import small
import torch
from expected_errors import refused

from headstart.config.training import LoopConfig
from headstart.data.labelled import read_labelled
from headstart.errors import IntegrityError
from headstart.machine import Machine
from headstart.runs.directory import RunDirectory
from headstart.runs.load import load
from headstart.training.fit import Console
from headstart.training.tasks.finetune import finetune
from headstart.training.tasks.pretrain import pretrain

MACHINE = Machine(torch.device("cpu"), "fp32", 1)
SMALL = {"width": 16, "ffn": 24, "heads": 2, "dropout": 0.1}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    lines = [" ".join(text.capitalize() for text in small.sentences(3, seed)) for seed in range(60)]
    (directory / "corpus.txt").write_text("\n".join(lines) + "\n")
    rows = [{"text": text, "label": "oui" if "belle" in text else "non"} for text in small.sentences(60, seed=99)]
    (directory / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:40]))
    (directory / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[40:]))
    numbers = [{"text": row["text"], "label": len(row["text"]) / 50} for row in rows]
    (directory / "numbers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers))
    many = [{"text": r["text"], "label": [w for w in ("belle", "triste") if w in r["text"]]} for r in rows]
    (directory / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in many))
    pairs = [
        {"text_a": r["text"], "text_b": q["text"], "label": r["label"]} for r, q in zip(rows, rows[::-1], strict=True)
    ]
    (directory / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    return directory


def base(files, out, objective="causal", steps=4, **options):
    return pretrain(
        [files / "corpus.txt"], out=out, objective=objective, model=SMALL, vocab=320, length=32,
        batch_tokens=128, steps=steps, machine=MACHINE, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def base_run(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("start") / "run"
    base(files, out)
    return out


def tune(files, out, data="train.jsonl", **options):
    options = {"model": SMALL, "vocab": 320, "length": 32, "steps": 4, **options}
    return finetune(files / data, out=out, machine=MACHINE, **options)


@pytest.mark.parametrize("objective", ["causal", "masked", "masked-nsp"])
def test_pretraining_writes_a_run_that_can_be_loaded(files, tmp_path, objective):
    result = base(files, tmp_path / "run", objective)
    run = load(tmp_path / "run")
    assert run.finished
    assert run.step == result["step"] == 4
    assert run.digest == result["weights_sha256"]
    assert run.config.objective == objective
    assert run.config.model.direction == ("causal" if objective == "causal" else "bidirectional")
    assert run.config.model.vocab == run.tokenizer.size
    assert result["valid"]["loss"] > 0
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "config.toml", "metrics.jsonl", "checkpoints", "tokenizer.json", "result.json", "weights.safetensors", "lock",
        "cost.json",
    }  # fmt: skip


def test_the_same_call_again_finds_it_finished(files, base_run):
    told = []
    before = (base_run / "weights.safetensors").read_bytes()
    base(files, base_run, console=Console(log=told.append))
    assert any("nothing to do" in line for line in told)
    assert (base_run / "weights.safetensors").read_bytes() == before


def test_more_steps_extend_a_finished_run(files, tmp_path):
    base(files, tmp_path / "run", steps=3)
    assert base(files, tmp_path / "run", steps=5)["step"] == 5


def test_other_settings_are_refused_with_the_difference(files, tmp_path):
    base(files, tmp_path / "run", steps=3)
    with refused("changed", "loop.seed was 0, is 7\n"):
        base(files, tmp_path / "run", steps=5, loop=LoopConfig(schedule="cosine", warmup=0.05, seed=7))
    with refused("changed", "loop.steps was 3, is 2"):
        base(files, tmp_path / "run", steps=2)


def test_a_time_becomes_steps_once(files, tmp_path):
    told = []
    options = {"machine": MACHINE, "model": SMALL, "vocab": 320, "length": 32, "batch_tokens": 128}
    options |= {"time": "0.12s", "console": Console(log=told.append)}
    first = pretrain([files / "corpus.txt"], out=tmp_path / "run", **options)
    assert first["step"] == RunDirectory(tmp_path / "run").read_config().loop.steps >= 1
    assert any("0.12s are" in line for line in told)
    assert pretrain([files / "corpus.txt"], out=tmp_path / "run", **options) == first


def test_fine_tuning_carries_the_base_and_says_so(files, tmp_path, base_run):
    told = []
    result = tune(
        files, tmp_path / "run", start=base_run, model={}, vocab=1, test=files / "test.jsonl",
        console=Console(log=told.append),
    )  # fmt: skip
    assert any("tensors carried over" in line and "head.classifier.weight" in line for line in told)
    assert set(result["test"]) >= {"accuracy", "macro_f1", "mcc", "calibration_error"}
    run = load(tmp_path / "run")
    assert run.config.label_names == ["non", "oui"]
    assert run.config.start == load(base_run).digest
    assert run.tokenizer.fingerprint == load(base_run).tokenizer.fingerprint


def test_a_frozen_base_stays_as_it_was(files, tmp_path, base_run):
    tune(files, tmp_path / "run", start=base_run, model={}, freeze="base")
    before, after = load(base_run).model, load(tmp_path / "run").model
    for name, parameter in before.base.named_parameters():
        assert torch.equal(parameter, after.base.get_parameter(name)), name
    with refused("missing", "--freeze=base", "--start"):
        tune(files, tmp_path / "other", freeze="base")


@pytest.mark.parametrize(
    ("data", "task", "scores"),
    [
        ("train.jsonl", "classification", {"accuracy", "macro_f1"}),
        ("many.jsonl", "multilabel", {"accuracy", "micro_f1"}),
        ("numbers.jsonl", "regression", {"rmse", "pearson"}),
        ("pairs.jsonl", "classification", {"accuracy"}),
    ],
)
def test_every_task_from_scratch(files, tmp_path, data, task, scores):
    result = tune(files, tmp_path / "run", data, task=task)
    assert scores <= set(result["valid"])
    assert all(np.isfinite(value) for value in result["valid"].values())


def test_label_budgets_are_used(files, tmp_path):
    tune(files, tmp_path / "run", labels=10, steps=None, epochs=1, batch=5)
    assert load(tmp_path / "run").step == 2


def test_a_budget_that_leaves_a_class_without_rows_is_refused(files, tmp_path):
    with refused("too-few", "--labels 1 leaves no row of 1 of 2 classes", "--labels 2"):
        tune(files, tmp_path / "run", labels=1)


def test_doubtful_rows_are_warned_of_once(files, tmp_path):
    told, rows = [], [json.loads(line) for line in (files / "train.jsonl").read_text().splitlines()]
    paths = [tmp_path / "train.jsonl", tmp_path / "valid.jsonl"]
    for path in paths:
        path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": "encore", "label": "non "}]))

    def tuned(name, train, valid):
        finetune(
            train, valid=valid, out=tmp_path / name, model=SMALL, length=8, tokenizer=small.tokenizer(), steps=1,
            machine=MACHINE, console=Console(told.append),
        )  # fmt: skip

    tuned("run", *paths)
    assert len([line for line in told if "look like one" in line and "'non␣' (1 row)" in line]) == 1
    assert len([line for line in told if "are longer than 8 tokens, and are cut" in line]) == 1
    told.clear()
    tuned("trial", *map(read_labelled, paths))  # as a study gives them, which has said it
    assert not [line for line in told if "look like one" in line or "are cut" in line]


def test_a_start_with_another_width_or_tokenizer_is_refused(files, tmp_path, base_run):
    with refused("mismatch", "width is 16", "32", by=IntegrityError):
        tune(files, tmp_path / "a", start=base_run, model={"width": 32})
    with refused("conflict", "--tokenizer", "--start"):
        tune(files, tmp_path / "b", start=base_run, model={}, tokenizer=base_run)


def test_a_label_that_could_never_be_predicted_is_known_before_training(files, tmp_path):
    (tmp_path / "odd.jsonl").write_text('{"text": "bof", "label": "peut-être"}\n')
    with refused("unknown-name", "odd.jsonl:1", "'peut-être'"):
        tune(files, tmp_path / "run", test=tmp_path / "odd.jsonl")
    assert not (tmp_path / "run/config.toml").exists()


def test_a_second_phase_starts_from_a_run(files, tmp_path, base_run):
    result = pretrain(
        [files / "corpus.txt"], out=tmp_path / "second", start=base_run, steps=3, machine=MACHINE,
        length=32, batch_tokens=128,
    )  # fmt: skip
    assert result["step"] == 3
    assert load(tmp_path / "second").config.start == load(base_run).digest


def test_the_same_settings_give_the_same_bytes_and_threads_are_noted(files, tmp_path):
    digests = {base(files, tmp_path / name)["weights_sha256"] for name in ("a", "b")}
    assert len(digests) == 1
    manifest = json.loads(next((tmp_path / "a/checkpoints").glob("*/manifest.json")).read_text())
    assert manifest["machine"]["threads"] == "1"
    assert manifest["settings"]["model.tokenizer"] == load(tmp_path / "a").tokenizer.fingerprint
