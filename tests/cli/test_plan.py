"""`headstart plan`: the table and the JSON say the same, and the contract's keys are there."""

import json

import pytest
import tiny_runs

from headstart.cli.main import run


@pytest.fixture(autouse=True)
def never_calibrated(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))


def test_json_has_the_contracts_keys_and_adds_up(capsys):
    assert run(["plan", "--preset", "lab", "--vocab", "100", "--head", "lm", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["parameters"]["total"] == plan["parameters"]["trainable"] == 1_008_100
    components = plan["parameters"]["components"]
    assert set(components[0]) == {"name", "formula", "count"}
    assert sum(row["count"] for row in components) == 1_008_100
    assert {"memory", "time", "operations"} <= set(plan)


def test_freezing_the_base_leaves_the_head(capsys):
    arguments = ["plan", "--preset", "lab", "--vocab", "100", "--head", "classification", "--classes", "2"]
    assert run([*arguments, "--freeze", "base", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["parameters"]
    assert (found["total"], found["trainable"]) == (988_402, 402)


def test_the_table_shows_formulas_and_the_total(capsys):
    assert run(["plan", "--preset", "lab", "--vocab", "100", "--head", "lm"]) == 0
    out = capsys.readouterr().out
    assert "L·(3d² + 3d)" in out
    assert "1,008,100" in out


def test_tensor_by_tensor_adds_up_too(capsys):
    arguments = ["plan", "--preset", "transformer-base", "--vocab", "37000", "--head", "translation"]
    assert run([*arguments, "--tensors", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["parameters"]
    assert sum(row["count"] for row in found["components"]) == found["total"] == 63_082_496
    assert any(
        row["name"] == "base.decoder.blocks.5.cross_attention.qkv.weight" for row in found["components"]
    )


def test_the_step_counts_the_batch(capsys):
    steps = []
    for batch in ("1", "8"):
        run(["plan", "--preset", "tiny", "--vocab", "100", "--batch", batch, "--length", "64", "--json"])
        steps.append(json.loads(capsys.readouterr().out)["operations"]["per_step"])
    assert steps[1] == 8 * steps[0]


def planned(capsys, *arguments, code=0):
    assert run(["plan", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_memory_time_disk_and_answer_are_there(capsys):
    plan = planned(capsys, "--vocab", "1000", "--steps", "500", "--device", "cpu:2")
    assert sum(plan["memory"]["kinds"].values()) == plan["memory"]["total"]
    assert sum(plan["time"]["kinds"].values()) == pytest.approx(plan["time"]["step"])
    assert plan["time"]["training"] == pytest.approx(500 * plan["time"]["step"])
    assert set(plan["disk"]) == {"checkpoints", "weights"}
    assert plan["answer"]["fits"]
    assert plan["answer"]["sentence"].startswith("fits, ")
    assert "on 2 cores" in plan["answer"]["sentence"]


def test_could_you_train_the_base_transformer_on_your_1050_ti(capsys):
    assert run(["plan", "--preset", "transformer-base", "--vocab", "37000", "--device", "1050ti"]) == 1
    out = capsys.readouterr().out
    answer = out.splitlines()[-1]
    assert answer.startswith("does not fit in 4 GB: ")
    assert "`--accumulate " in answer
    assert "days for 100,000 steps on NVIDIA GTX 1050 Ti" in answer
    assert "fp32" in out


def test_what_the_answer_proposes_fits(capsys):
    question = ["--preset", "transformer-base", "--vocab", "37000", "--device", "1050ti"]
    answer = planned(capsys, *question, code=1)["answer"]
    assert planned(capsys, *question, "--accumulate", str(answer["accumulate"]))["answer"]["fits"]
    assert planned(capsys, *question, "--batch", str(answer["largest_batch"]))["answer"]["fits"]


def test_utilisation_and_memory_can_be_said(capsys):
    arguments = ["--vocab", "8000", "--preset", "modern-small", "--batch", "8", "--device", "t4"]
    slow = planned(capsys, *arguments, "--utilisation", "0.1")["time"]["kinds"]["products"]
    fast = planned(capsys, *arguments, "--utilisation", "0.4")["time"]["kinds"]["products"]
    assert slow == pytest.approx(4 * fast)
    assert not planned(capsys, *arguments, "--memory", "1", code=1)["answer"]["fits"]


def test_an_epoch_of_a_corpus_is_counted_in_steps(capsys, tmp_path):
    (tmp_path / "corpus.txt").write_bytes(b"x" * 409_600)
    arguments = ["--vocab", "1000", "--batch", "4", "--length", "256", "--device", "cpu:1"]
    plan = planned(capsys, *arguments, "--corpus", str(tmp_path / "corpus.txt"), "--epochs", "2")
    assert plan["time"]["steps"] == 2 * 102_400 // 1024
    assert plan["disk"]["token store"] == 2 * 102_400


def test_a_budget_is_a_model_and_the_command_that_trains_it(capsys):
    arguments = [
        "--budget",
        "2h",
        "--tokens",
        "1000000000",
        "--preset",
        "modern-small",
        "--device",
        "rtx4090",
    ]
    chosen = planned(capsys, *arguments)["chosen"]
    assert chosen["seconds"] <= 7200
    assert run(["plan", *arguments]) == 0
    out = capsys.readouterr().out
    assert f"headstart pretrain --corpus … --preset modern-small --width {chosen['width']}" in out


def test_runs_are_checked_with_the_median_of_their_errors(capsys):
    found = planned(capsys, "--check", str(tiny_runs.path_of("causal")))
    assert len(found["runs"]) == 1
    assert found["median_seconds_error"] == pytest.approx(abs(found["runs"][0]["seconds_error"]))
    assert run(["plan", "--check", str(tiny_runs.path_of("causal"))]) == 0
    assert "median error in time" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--device", "rtx9999"],
        ["--budget", "2h"],
        ["--budget", "soon", "--tokens", "1000"],
        ["--epochs", "2"],
        ["--steps", "2", "--epochs", "2", "--tokens", "100"],
        ["--corpus", "nowhere.txt"],
        ["--batch", "-1"],
        ["--accumulate", "0"],
        ["--calibrate", "--device", "h200"],
        ["--check", "nowhere"],
        ["--study", "nowhere.toml"],
        ["--memory", "-2"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_planned_is_refused(arguments, capsys):
    assert run(["plan", "--vocab", "1000", *arguments]) == 2
    assert "fix: " in capsys.readouterr().err
