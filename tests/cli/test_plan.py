"""`headstart plan`: the table and the JSON say the same, and the contract's keys are there."""

import json

from headstart.cli.main import run


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
