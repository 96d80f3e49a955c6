"""`headstart runs`: what it prints, and what it refuses."""

import json
import shutil

import pytest
import tiny_runs


@pytest.fixture
def runs(tmp_path):
    """A good run, one that started from it, one that stopped on its way, and five that are broken."""
    top = tmp_path / "runs"
    for kind in ("causal", "classification"):
        shutil.copytree(tiny_runs.path_of(kind), top / kind)
    shutil.copytree(tiny_runs.path_of("causal"), top / "study" / "trials" / "halfway")
    (top / "study" / "trials" / "halfway" / "result.json").unlink()
    with (top / "study" / "trials" / "halfway" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "loss')
    for name, file, content in (
        ("b-config", "config.toml", "width = ["),
        ("b-key", "config.toml", 'colour = "blue"\n'),
        ("b-result", "result.json", "[1, 2]"),
        ("b-result-json", "result.json", "{"),
        ("b-\x1b[31mbytes", "config.toml", None),
    ):
        shutil.copytree(tiny_runs.path_of("masked"), top / name)
        (top / name / file).write_bytes(b"\xff\xfe" if content is None else content.encode())
    shutil.copytree(tiny_runs.path_of("masked"), top / "b-weights")
    (top / "b-weights" / "weights.safetensors").unlink()
    shutil.copytree(tiny_runs.path_of("masked"), top / "b-lost")
    (top / "b-lost" / "config.toml").unlink()
    (top / "notes").mkdir()
    (top / "notes" / "diary.txt").write_text("not a run")
    return top


def test_runs_lists_what_is_there_and_what_is_broken_and_why(cli, runs):
    code, out, _ = cli("runs", runs, "--json")
    assert code == 0
    found = {run["name"]: run for run in json.loads(out)["runs"]}
    assert "notes" not in found
    causal, tuned, halfway = found["causal"], found["classification"], found["study/trials/halfway"]
    result = json.loads((runs / "causal" / "result.json").read_text())
    assert (causal["state"], causal["objective"], causal["start"]) == ("finished", "causal", "scratch")
    assert causal["parameters"] == result["parameters"]
    assert (causal["step"], causal["steps"]) == (4, 4)
    assert causal["valid"] == pytest.approx(result["valid"])
    assert tuned["start"] == "causal"
    assert (halfway["state"], halfway["step"]) == ("unfinished", 4)
    assert halfway["valid"]["loss"] == pytest.approx(result["valid"]["loss"])
    assert causal["last_write"].startswith("20")
    reasons = {name: run["reason"] for name, run in found.items() if run["state"] == "broken"}
    assert set(reasons) == {name for name in found if name.startswith("b-")}
    assert len(reasons) == 7
    assert "TOML" in reasons["b-config"]
    assert "unknown key 'colour'" in reasons["b-key"]
    assert "weights.safetensors is missing" in reasons["b-weights"]
    assert "no config.toml" in reasons["b-lost"]
    assert "not UTF-8" in reasons["b-\x1b[31mbytes"]


def test_runs_as_a_table_shows_escapes_and_reasons(cli, runs):
    code, out, _ = cli("runs", runs)
    assert code == 0
    assert "\x1b" not in out
    assert "b-\\x1b[31mbytes" in out
    line = next(line for line in out.splitlines() if line.startswith("classification"))
    assert "accuracy" in line
    assert "4/4" in line
    assert "finished" in line
    assert "b-weights: weights.safetensors is missing" in out


def test_runs_of_a_run_itself_of_nothing_and_of_nowhere(cli, tmp_path):
    _, out, _ = cli("runs", tiny_runs.path_of("causal"), "--json")
    assert [run["name"] for run in json.loads(out)["runs"]] == ["causal"]
    code, out, _ = cli("runs", tmp_path)
    assert (code, out) == (0, f"no runs under {tmp_path}\n")
    code, out, err = cli("runs", tmp_path / "nowhere")
    assert (code, out) == (2, "")
    assert str(tmp_path / "nowhere") in err
