"""`headstart.study(...)`: from keywords to the call of the study, its progress and its report."""

from pathlib import Path

import pytest
from expected_errors import refused

import headstart
from headstart import full_study as module
from headstart.config.study import PretrainPart, StudyConfig
from headstart.study.study import StudyProgress

ROWS = [{"review": "un roman", "label": "oui"}]


@pytest.fixture
def called(monkeypatch):
    """Calls of the study instead of studies, each with its arguments; and where reports would be written."""
    calls, reports = [], []

    def run(config, **arguments):
        arguments["log"]("give --out or --jobs 4")
        arguments["on_progress"](StudyProgress(0.25, 3, 21, {"tfidf-b50-s0": 0.5}))
        calls.append((config, arguments))
        return "the record"

    monkeypatch.setattr(module, "run_study", run)
    monkeypatch.setattr(module, "write_report", reports.append)
    return calls, reports


def test_files_and_settings_become_the_studys_settings(called):
    calls, reports = called
    found = headstart.study(
        train="rows/labelled.csv", corpus="texts.txt", text_column="review", label_column="stars", time="2h",
        budgets=[50, 200], objective=["masked"], width=64, seeds=2, shuffled=True, jobs=4, device="cpu",
    )  # fmt: skip
    ((config, arguments),) = calls
    assert found == "the record"
    assert reports == [Path("studies/labelled")] == [arguments["out"]]
    assert (config.finetune.train, config.pretrain[0].corpus) == ("rows/labelled.csv", ["texts.txt"])
    assert (config.reading.text_column, config.reading.label_column) == ("review", "stars")
    assert (config.study.time, config.study.budgets, config.study.objectives) == ("2h", [50, 200], ["masked"])
    assert config.study.arms[-1] == "shuffled"
    assert (arguments["model"], arguments["jobs"], arguments["device"]) == ({"width": 64}, 4, "cpu")
    assert {"study.seeds", "study.budgets", "finetune.train"} <= arguments["given"]
    assert "train" not in arguments


def test_tables_in_memory_are_given_beside_the_settings(called):
    calls, _ = called
    headstart.study(train=ROWS, corpus=[ROWS, "texts.txt"], valid="valid.csv", text_column="review", out="s")
    ((config, arguments),) = calls
    assert arguments["train"] is ROWS
    assert arguments["corpus"] == [ROWS, "texts.txt"]
    assert (config.finetune.valid, config.study.demo, config.study.time) == ("valid.csv", "", "30m")
    with refused("missing", "--out"):
        headstart.study(train=ROWS)


def test_nothing_given_is_the_demo_and_settings_are_a_start(called):
    calls, _ = called
    headstart.study()
    headstart.study(StudyConfig(pretrain=[PretrainPart(steps=9)]), out="s", pretrain_steps=5, model={"depth": 2})
    (demo, at), (config, arguments) = calls
    assert (demo.study.demo, at["out"]) == ("plain", Path("studies/plain"))
    assert (config.pretrain[0].steps, arguments["model"]) == (5, {"depth": 2})


def test_progress_and_lines_go_to_standard_error_in_the_words_of_python(called, capsys, monkeypatch):
    monkeypatch.setattr("headstart.progress.LINE_SECONDS", 0.0)
    headstart.study(out="s")
    out, err = capsys.readouterr()
    assert out == ""
    assert "give out or jobs=4" in err
    assert "study 25%  3 of 21 tasks done  tfidf-b50-s0 50%" in err


def test_who_takes_the_lines_gets_them_as_they_are(called, capsys):
    lines = []
    headstart.study(out="s", log=lines.append)
    assert lines == ["give --out or --jobs 4"]
    assert capsys.readouterr().err == ""


def test_a_misspelt_keyword_is_refused_with_the_nearest(called):
    with refused("unknown-name", "text_colum", "text_column") as caught:
        headstart.study(train="t.csv", text_colum="review")
    assert "--" not in str(caught.value)
