import dataclasses
import json

import pytest
from small_study import MODEL, small_config, write_files

from headstart.cli.main import run as headstart
from headstart.config import to_toml


def run(words, capsys):
    """Exit code, standard output and standard error of a command line."""
    code = headstart(words)
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def study_file(tmp_path_factory):
    """A STUDY.toml of seconds."""
    place = tmp_path_factory.mktemp("study")
    config = small_config(
        write_files(place / "files"), arms=["majority", "scratch", "finetuned"], budgets=[10]
    )
    settings = {**dataclasses.asdict(config), "model": MODEL}
    (place / "STUDY.toml").write_text(to_toml(settings))
    return place / "STUDY.toml"


def test_a_study_ends_with_verdict_table_and_report(study_file, tmp_path, capsys):
    code, out, _ = run(
        ["study", str(study_file), "--seeds", "2", "--out", str(tmp_path / "s"), "--jobs", "2"], capsys
    )
    assert code == 0
    assert "Pretraining makes no difference that this study can be sure of" in out
    assert "accuracy, %" in out
    assert str(tmp_path / "s" / "report.html") in out
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


def test_a_failed_trial_is_exit_1_with_the_rest_done(study_file, tmp_path, capsys):
    broken = tmp_path / "s" / "trials" / "scratch-b10-s0"
    broken.mkdir(parents=True)
    (broken / "rate-0.001").write_text("a file where a directory has to be")
    code, out, err = run(
        ["study", str(study_file), "--seeds", "1", "--out", str(tmp_path / "s"), "--jobs", "2"], capsys
    )
    assert code == 1
    assert "1 of 4 trials and pretrainings failed" in err
    assert "rate-0.001" in err
    assert "accuracy, %" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--demo", "plain", "--train", "x.jsonl"], "--demo and files at once"),
        (["--train", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--demo", "plain", "--objective", "casual"], "did you mean 'causal'"),
        (["--demo", "plain", "--arms", "scrach"], "did you mean 'scratch'"),
        (["--demo", "plain", "--budgets", "1"], "between 2 and 1600"),
        (["--corpus", "text.txt"], "no labelled rows"),
        (["nowhere.toml"], "nowhere.toml"),
        (["--valid", "v.jsonl"], "--valid or --test without --train"),
        (["--demo", "plain", "--seeds", "0"], "seeds is 0"),
    ],
)
def test_what_cannot_be_is_exit_2_with_the_fix(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(["study", *words, "--out", str(tmp_path / "s")], capsys)
    assert code == 2
    assert said in err.replace("\n", " ")
    assert "fix:" in err


def test_a_study_file_given_as_a_config_is_told_where_it_goes(study_file, capsys):
    code, _, err = run(["study", "--config", str(study_file)], capsys)
    assert code == 2
    assert f"headstart study {study_file}" in err.replace("\n", "")
