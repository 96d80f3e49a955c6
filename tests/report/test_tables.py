"""results.csv: every number once, a failed trial as a failed trial, and no formula for a spreadsheet."""

import csv
import io

import synthetic_study
from hypothesis import given
from hypothesis import strategies as st

from headstart.report.study_file import Study, _typed
from headstart.report.tables import COLUMNS, _cell, results_csv


def rows_of(found):
    text = results_csv(_typed(Study, found, "", "study.json"))
    return list(csv.DictReader(io.StringIO(text)))


def test_every_trial_score_and_difference_has_its_rows():
    found = synthetic_study.study(extra=("scratch-long",))
    rows = rows_of(found)
    assert list(rows[0]) == COLUMNS
    kinds = [row["record"] for row in rows]
    assert kinds.count("trial") == 2 * len(found["trials"])
    assert kinds.count("score") == 3 * len(found["scores"])
    assert kinds.count("difference") == len(found["differences"])


def test_numbers_are_the_numbers_of_the_study():
    found = synthetic_study.study()
    rows = rows_of(found)
    trial = found["trials"][-1]
    row = [r for r in rows if r["record"] == "trial" and r["measure"] == "accuracy"][-1]
    assert float(row["value"]) == trial["accuracy"]
    assert (row["arm"], int(row["budget"]), int(row["seed"])) == (
        trial["arm"],
        trial["budget"],
        trial["seed"],
    )
    score = next(r for r in rows if r["record"] == "score")
    assert float(score["low"]) == found["scores"][0]["accuracy"]["low"]
    difference = next(r for r in rows if r["record"] == "difference")
    assert float(difference["p_holm"]) == found["differences"][0]["p_holm"]


def test_a_failed_trial_has_its_row_and_its_error_and_no_value():
    found = synthetic_study.study(failed=[("scratch", 50, 1)])
    failed = [row for row in rows_of(found) if row["status"] == "failed"]
    assert {(row["arm"], row["budget"], row["seed"], row["value"]) for row in failed} == {
        ("scratch", "50", "1", "")
    }
    assert failed[0]["error"] == "the loss is not finite at step 12"


def test_negative_numbers_stay_numbers():
    found = synthetic_study.study()
    found["differences"][0] |= {"value": -0.25, "low": -0.5}
    row = next(r for r in rows_of(found) if r["record"] == "difference")
    assert (float(row["value"]), float(row["low"])) == (-0.25, -0.5)


@given(st.text(max_size=30))
def test_no_text_cell_begins_a_formula(text):
    for start in ("", "=", "+", "-", "@", "\t", "\r", " =", "＝"):
        cell = _cell(start + text)
        assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"))
        if start:
            assert cell.startswith("'")
