"""`headstart study` and `headstart report`: what they print and refuse, and what becomes of the flags."""

import dataclasses
import json

import pytest
import synthetic_study
from commands import invoke
from small_study import MODEL, small_config, write_files

from headstart.cli.main import run as headstart
from headstart.config.toml import to_toml
from headstart.report.page import report_page
from headstart.study.record import StudyRecord

STUDY_FILE = "the small study's file"


def run(words, capsys):
    """Exit code, standard output and standard error of a command line."""
    code = headstart(words)
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def study_file(tmp_path_factory):
    """A STUDY.toml of seconds."""
    directory = tmp_path_factory.mktemp("study")
    config = small_config(write_files(directory / "files"), arms=["majority", "scratch", "finetuned"], budgets=[10])
    settings = {**dataclasses.asdict(config), "model": MODEL}
    (directory / "STUDY.toml").write_text(to_toml(settings))
    return directory / "STUDY.toml"


def test_a_study_ends_with_verdict_table_and_report(study_file, tmp_path, capsys):
    code, out, _ = run(["study", str(study_file), "--seeds", "2", "--out", str(tmp_path / "s"), "--jobs", "2"], capsys)
    assert code == 0
    assert out.startswith("No arm is clearly better than always answering")
    assert "The base is undertrained: 12 steps" in out
    assert "This base makes no clear difference" in out
    assert "accuracy, %" in out
    assert str(tmp_path / "s" / "report.html") in out
    ending = out.splitlines()[-1]
    assert (tmp_path / "s" / "results.csv").exists()
    page = (tmp_path / "s" / "report.html").read_text()
    assert "finetuned" in page

    code, out, err = run(
        ["study", str(study_file), "--seeds", "2", "--out", str(tmp_path / "s"), "--json", "--device", "cpu", "--fast"],
        capsys,
    )  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert "exact, although --fast was asked for" in err
    assert found["report"] == str(tmp_path / "s" / "report.html")
    assert {t["status"] for t in found["trials"]} == {"done"}

    (tmp_path / "s" / "report.html").unlink()
    code, out, _ = run(["report", str(tmp_path / "s")], capsys)
    assert code == 0
    assert (tmp_path / "s" / "report.html").read_text() == page

    kept = found["kept_model"]
    texts = tmp_path / "texts.txt"
    texts.write_text("un livre magnifique\nun livre raté\n")
    assert f"headstart predict {tmp_path / 's'}" in ending
    code, out, _ = run(["predict", str(tmp_path / "s"), str(texts)], capsys)
    assert (code, [set(json.loads(line)) for line in out.splitlines()]) == (
        0,
        [{"label", "probabilities"}] * 2,
    )
    code, out, _ = run(
        ["evaluate", str(tmp_path / "s"), "--data", found["config"]["finetune"]["test"], "--json"], capsys
    )
    own = [t["accuracy"] for t in found["trials"] if (t["arm"], t["seed"]) == (kept["arm"], 0)]
    assert (code, json.loads(out)["metrics"]["accuracy"]) == (0, pytest.approx(own[0]))
    code, _, _ = run(["export", str(tmp_path / "s"), "--to", "huggingface", str(tmp_path / "hf")], capsys)
    assert code == 0
    assert (tmp_path / "hf" / "model.safetensors").exists()


def test_a_failed_trial_is_exit_1_with_the_rest_done(study_file, tmp_path, capsys):
    broken = tmp_path / "s" / "trials" / "scratch-b10-s0"
    broken.mkdir(parents=True)
    (broken / "lr-0.001").write_text("a file where a directory has to be")
    code, out, err = run(
        ["study", str(study_file), "--seeds", "1", "--out", str(tmp_path / "s"), "--jobs", "2"], capsys
    )
    assert code == 1
    assert "1 of 4 trials and pretrainings failed" in err
    assert "lr-0.001" in err
    assert "accuracy, %" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--demo", "plain", "--train", "x.jsonl"], "--demo and files at once"),
        (["--train", "nowhere.jsonl"], "nowhere.jsonl"),
        ([STUDY_FILE, "--objective", "casual"], "did you mean 'causal'"),
        ([STUDY_FILE, "--arms", "scrach"], "did you mean 'scratch'"),
        ([STUDY_FILE, "--budgets", "1"], "between 2 and 40"),
        (["--corpus", "text.txt"], "no labelled rows"),
        (["nowhere.toml"], "nowhere.toml"),
        (["--valid", "v.jsonl"], "--valid or --test without --train"),
        (["--demo", "plain", "--seeds", "0"], "seeds is 0"),
    ],
)
def test_what_cannot_be_is_exit_2_with_the_fix(words, said, study_file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [str(study_file) if word == STUDY_FILE else word for word in words]
    code, _, err = run(["study", *words, "--out", str(tmp_path / "s")], capsys)
    assert code == 2
    assert said in err.replace("\n", " ")
    assert "fix:" in err


def test_a_study_file_given_as_a_config_is_told_where_it_goes(study_file, capsys):
    code, _, err = run(["study", "--config", str(study_file)], capsys)
    assert code == 2
    assert f"headstart study {study_file}" in err.replace("\n", "")


# ---- the plan, and nothing else ------------------------------------------------------------------------------


def test_a_plan_names_the_tasks_and_their_time_and_leaves_nothing(study_file, tmp_path, capsys):
    words = ["study", str(study_file), "--seeds", "2", "--out", str(tmp_path / "s"), "--plan"]
    code, out, _ = run(words, capsys)
    assert code == 0
    assert not (tmp_path / "s").exists()
    rows = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert rows["pretraining, causal"][2:4] == ["1", "12"]
    assert rows["finetuned, 10 labels"][3] == "2", "seeds"
    assert "In all about" in out
    code, out, _ = run([*words, "--json"], capsys)
    assert {part["name"] for part in json.loads(out)["forecast"]["parts"]} >= {
        "majority, 10 labels",
        "scratch, 10 labels",
    }


# ---- the report, written again -----------------------------------------------------------------------------


def test_the_verb_writes_the_report_again(tmp_path, capsys):
    synthetic_study.write(tmp_path, synthetic_study.study(budgets=(50,), seeds=1))
    answer = invoke(capsys, ["report", str(tmp_path), "--json"])
    assert answer.code == 0
    assert json.loads(answer.out) == {
        "report": str(tmp_path / "report.html"), "results": str(tmp_path / "results.csv"),
    }  # fmt: skip
    expected = report_page(StudyRecord.load(tmp_path))
    assert (tmp_path / "report.html").read_text() == expected
    assert "wrote" in invoke(capsys, ["report", str(tmp_path)]).out


def test_the_verb_has_exit_codes(tmp_path, capsys):
    answer = invoke(capsys, ["report", str(tmp_path)])
    assert answer.code == 2
    assert str(tmp_path) in answer.err
    (tmp_path / "study.json").write_text("{}")
    assert invoke(capsys, ["report", str(tmp_path)]).code == 3
