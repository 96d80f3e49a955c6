"""`headstart plan`: the table and the JSON say the same, and the contract's keys are there."""

import dataclasses
import gzip
import json
import re
import shlex

import checksummed
import pytest
import tiny_runs

from headstart.cli.main import application, run
from headstart.config.presets import preset


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
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert (parameters["total"], parameters["trainable"]) == (988_402, 402)


def test_the_table_shows_formulas_and_the_total(capsys):
    assert run(["plan", "--preset", "lab", "--vocab", "100", "--head", "lm"]) == 0
    out = capsys.readouterr().out
    assert "L·(3d² + 3d)" in out
    assert "1,008,100" in out


def test_tensor_by_tensor_adds_up_too(capsys):
    arguments = ["plan", "--preset", "transformer-base", "--vocab", "37000", "--head", "translation"]
    assert run([*arguments, "--tensors", "--json"]) == 0
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert sum(row["count"] for row in parameters["components"]) == parameters["total"] == 63_082_496
    assert any(row["name"] == "base.decoder.blocks.5.cross_attention.qkv.weight" for row in parameters["components"])


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


def test_a_compressed_corpus_is_counted_by_its_text(capsys, tmp_path):
    with gzip.open(tmp_path / "corpus.txt.gz", "wb") as file:
        file.write(b"x" * 409_600)
    plain = tmp_path / "corpus.txt"
    plain.write_bytes(b"x" * 409_600)
    arguments = ["--preset", "tiny", "--vocab", "1000", "--epochs", "2", "--device", "cpu:2", "--corpus"]
    steps = [planned(capsys, *arguments, str(path))["time"]["steps"] for path in (plain, tmp_path / "corpus.txt.gz")]
    assert steps[0] == steps[1] > 0


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
    found = planned(capsys, *arguments)
    assert found["chosen"]["seconds"] <= 7200
    assert run(["plan", *arguments]) == 0
    out = capsys.readouterr().out
    assert f"    {found['command']}\n" in out
    assert "CORPUS stands for the files of the text." in out


def parsed(command):
    """What `headstart pretrain` understands of a line that was typed into a shell."""
    words = shlex.split(command)
    assert words[:2] == ["headstart", "pretrain"]
    _, bound, _ = application(words[1:]).parse_args(words[1:], exit_on_error=False, print_error=False)
    return bound.arguments


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--vocab", "3000", "--positions", "learned", "--no-bias", "--context", "64", "--dropout", "0.1"],
        [
            "--preset",
            "modern-small",
            "--bias",
            "--kv-heads",
            "1",
            "--norm-epsilon",
            "1e-12",
            "--length",
            "100",
        ],
        ["--preset", "lab", "--tied", "--width", "96", "--heads", "3", "--head", "masked"],
        ["--preset", "bert-base", "--head", "masked-nsp"],
        ["--preset", "tiny", "--head", "masked-nsp", "--activation", "swiglu"],
    ],
    ids=" ".join,
)
def test_the_command_of_a_budget_trains_what_was_planned(flags, capsys, tmp_path):
    corpus = [tmp_path / "it's [bold] here.txt", tmp_path / "b.txt"]
    for path in corpus:
        path.write_bytes(b"x" * 400_000)
    files = [str(path) for path in corpus]
    plan = planned(capsys, "--budget", "5m", "--corpus", *files, "--device", "cpu:2", *flags)
    given = parsed(plan["command"])
    assert given["corpus"] == tuple(files)
    own = given["own"].given()
    objective = own.get("objective", "causal")
    assert {"causal": "lm"}.get(objective, objective) == plan["head"]["kind"]
    direction = "causal" if objective == "causal" else "bidirectional"
    overrides = {**given["model"].given(), "direction": direction}  # as pretraining does
    assert dataclasses.asdict(preset(own["preset"], **overrides)) == plan["config"]
    assert own["length"] == plan["operations"]["length"]["source"]
    assert own["batch_tokens"] == own["length"] * plan["chosen"]["batch"]
    assert (given["training"].steps, given["training"].accumulate or 1) == (
        plan["chosen"]["steps"], plan["chosen"]["accumulate"],
    )  # fmt: skip
    assert (given["common"].device, given["common"].threads) == ("cpu", 2)
    assert run(["plan", "--budget", "5m", "--corpus", *files, "--device", "cpu:2", *flags]) == 0
    assert plan["command"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("device", "machine"),
    [("cpu:3", ("cpu", "fp32", 3)), ("t4", ("cuda", "fp32", None)), ("H200", ("cuda", "bf16", None))],
)
def test_the_command_of_a_budget_is_for_the_machine_that_was_named(device, machine, capsys):
    plan = planned(capsys, "--budget", "5m", "--tokens", "100000", "--device", device)
    found = parsed(plan["command"])["common"]
    assert (found.device, found.precision, found.threads) == machine
    assert found.precision == plan["memory"]["precision"]


def test_the_command_of_a_budget_keeps_what_was_asked_and_the_seed(capsys):
    arguments = [
        "--budget",
        "5m",
        "--tokens",
        "100000",
        "--device",
        "cpu",
        "--precision",
        "bf16",
        "--seed",
        "7",
    ]
    found = parsed(planned(capsys, *arguments)["command"])["common"]
    assert (found.device, found.precision, found.seed, found.threads) == ("cpu", "bf16", 7, None)


def test_a_batch_of_one_text_is_one_text(capsys):
    arguments = ["--budget", "5m", "--tokens", "100000", "--context", "1024", "--device", "cpu:1"]
    assert run(["plan", *arguments]) == 0
    assert " steps of 1 text, " in capsys.readouterr().out


@pytest.mark.parametrize("device", ["1050ti", "cpu:2"])
def test_a_machine_that_is_not_here_is_not_to_be_calibrated(device, capsys):
    assert run(["plan", "--vocab", "1000", "--device", device]) == 0
    out = capsys.readouterr().out
    assert "--calibrate" not in out
    assert "Not measured: the public peak rates of such a machine, at the utilisation stated above" in out
    assert run(["plan", "--vocab", "1000", "--device", "cpu"]) == 0
    assert "`headstart plan --calibrate` does so on this machine" in capsys.readouterr().out


def test_shares_are_written_in_one_way(capsys):
    assert run(["plan", "--vocab", "1000", "--device", "t4", "--utilisation", "0.3"]) == 0
    out = capsys.readouterr().out
    assert "30 % of the peak, as given" in out
    assert not re.search(r"\d%", out)


def test_runs_are_checked_with_the_median_of_their_errors(capsys):
    found = planned(capsys, "--check", str(tiny_runs.path_of("causal")))
    assert len(found["runs"]) == 1
    assert found["median_seconds_error"] == pytest.approx(abs(found["runs"][0]["seconds_error"]))
    assert run(["plan", "--check", str(tiny_runs.path_of("causal"))]) == 0
    assert "median error in time" in capsys.readouterr().out


def costed(directory, *memories):
    """Runs of 0.02 s a step, planned at 0.03, and memory planned at 600 MB, measured in MB."""
    for number, measured in enumerate(memories):
        (directory / f"a-run-of-a-rather-long-name-{number}").mkdir()
        data = {
            "planned": {"device": "A processor, long of name", "seconds_a_step": 0.0304, "memory": 600 * 2**20},
            "measured": {"seconds_a_step": 0.0203, "memory": measured and measured * 2**20},
        }  # fmt: skip
        checksummed.write(directory / f"a-run-of-a-rather-long-name-{number}" / "cost.json", data)


def test_memory_that_was_not_measured_is_not_counted(capsys, tmp_path):
    costed(tmp_path, 400, 500, 750, None)
    found = planned(capsys, "--check", str(tmp_path))
    # 600 for 500 and for 750: 20 % either way; for 400 half as much again.
    assert (found["median_memory_error"], found["worst_memory_error"]) == pytest.approx((0.2, 0.5))
    assert run(["plan", "--check", str(tmp_path)]) == 0
    assert "median error in memory: 20 %, at worst 50 %" in capsys.readouterr().out


def test_a_table_that_is_piped_is_not_cut(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    costed(tmp_path, 600)
    assert run(["plan", "--check", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    assert "30.4 milliseconds  20.3 milliseconds" in out
    assert str(tmp_path / "a-run-of-a-rather-long-name-0") in out


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ("--device rtx9999", None, "rtx9999"),
        ("--budget 2h", "missing", "--budget"),
        ("--budget soon --tokens 1000", None, "'soon'"),
        ("--epochs 2", "missing", "--epochs"),
        ("--steps 2 --epochs 2 --tokens 100", "conflict", "--steps and --epochs"),
        ("--steps -1", "bad-value", "steps is -1"),
        ("--corpus nowhere.txt", "no-file", "nowhere.txt"),
        ("--batch -1", "bad-value", "batch is -1"),
        ("--accumulate 0", "bad-value", "accumulate is 0"),
        ("--calibrate --device h200", "conflict", "--calibrate for h200"),
        ("--check nowhere", None, "nowhere"),
        ("--study nowhere.toml", None, "nowhere.toml"),
        ("--memory -2", None, "-2"),
        ("--budget 2h --tokens 100000 --head classification", "unsupported", "classification"),
        ("--budget 2h --tokens 100000 --preset transformer-tiny", "unsupported", "transformer-tiny"),
        ("--budget 2h --tokens 100000 --optimizer muon", "conflict", "--optimizer"),
        ("--budget 2h --tokens 100000 --steps 1", "conflict", "--steps"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments, code, named, capsys):
    assert run(["plan", "--vocab", "1000", *arguments.split()]) == 2
    err = capsys.readouterr().err
    assert named in err
    assert "fix: " in err
    if code:  # others are raised elsewhere
        assert err.startswith(f"headstart [{code}]: ")


def test_a_budget_beside_what_it_chooses_anyway_is_planned(capsys):
    planned(
        capsys,
        *["--budget", "2h", "--tokens", "100000", "--optimizer", "adamw", "--accumulate", "1", "--keep", "3"],
    )
