"""study.json is read strictly: what is missing or of another type is named with its place."""

import re

import pytest
import synthetic_study
from expected_errors import refused

from headstart.errors import IntegrityError
from headstart.report.page import write_report
from headstart.study.record import DifferenceRecord, StudyRecord, parse


def test_a_directory_without_a_study_says_what_is_expected(tmp_path):
    with refused("not-a-run", str(tmp_path), "study.json", "headstart study --out"):
        write_report(tmp_path)
    with refused("not-a-run", str(tmp_path / "nowhere"), "not a directory"):
        write_report(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": 1}', b"[" * 100_000])
def test_a_broken_study_is_an_integrity_error_with_the_fix(tmp_path, raw):
    (tmp_path / "study.json").write_bytes(raw)
    with pytest.raises(IntegrityError) as caught:
        write_report(tmp_path)
    assert "run `headstart study` again" in caught.value.fix
    assert not (tmp_path / "report.html").exists()


REQUIRED = [
    "format", "name", "command", "config", "verdict", "data", "model", "arms", "budgets", "seeds", "pretraining",
    "trials", "scores", "differences", "savings", "confusion", "items", "power", "learning_rates",
]  # fmt: skip


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(tmp_path, name):
    found = synthetic_study.study(budgets=(50,), seeds=1)
    del found[name]
    synthetic_study.write(tmp_path, found)
    with refused("corrupt", "study.json", by=IntegrityError) as caught:
        write_report(tmp_path)
    assert name in caught.value.what.split()


def test_a_field_of_another_type_is_named_with_its_place(tmp_path):
    found = synthetic_study.study(budgets=(50,), seeds=1)
    found["trials"][2]["accuracy"] = "good"
    synthetic_study.write(tmp_path, found)
    with refused("corrupt", "study.json", "trials[2].accuracy", by=IntegrityError):
        write_report(tmp_path)


def test_another_format_is_refused(tmp_path):
    synthetic_study.write(tmp_path, synthetic_study.study(budgets=(50,), seeds=1) | {"format": 2})
    with refused("corrupt", "study.json", "format 2", by=IntegrityError):
        write_report(tmp_path)


def test_a_number_that_is_not_finite_is_null_where_that_may_be_and_else_named(tmp_path):
    found = synthetic_study.study(budgets=(50, 200), seeds=1)
    found["trials"][4]["accuracy"] = float("inf")
    text = write_report(synthetic_study.write(tmp_path, found)).read_text()
    assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)
    found["scores"][3]["accuracy"]["low"] = float("nan")
    with refused("corrupt", "study.json", "scores[3].accuracy.low", by=IntegrityError):
        write_report(synthetic_study.write(tmp_path, found))


def test_what_was_written_is_read_back(tmp_path):
    record = parse(StudyRecord, synthetic_study.study(extra=("frozen",), failed=[("scratch", 50, 1)]), "")
    (tmp_path / "study.json").write_bytes(record.to_json())
    assert StudyRecord.load(tmp_path) == record
    assert [run.name for run in record.failed] == ["scratch-b50-s1"]


@pytest.mark.parametrize(("low", "p_holm", "is_clear"), [(0.01, 0.04, True), (0.01, 0.08, False), (-0.01, 0.04, False)])
def test_a_difference_is_clear_by_its_interval_and_by_p_after_holm(low, p_holm, is_clear):
    row = DifferenceRecord(
        arm="a",
        against="b",
        budget=50,
        reading="equal labels",
        value=0.1,
        low=low,
        high=0.2,
        p=0.01,
        p_holm=p_holm,
    )
    assert row.is_clear == is_clear
