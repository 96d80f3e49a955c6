"""The report: one small file that asks for nothing, says everything, and is the same for the same study."""

import csv
import io
import itertools
import re
from pathlib import Path

import pytest
import synthetic_study
from expected_errors import refused
from hypothesis import given
from hypothesis import strategies as st
from page_reading import Page

import headstart.report.page as module
from headstart.errors import IntegrityError
from headstart.report.page import COLUMNS, _cell, class_shares, plain, results_csv, settings, write_report
from headstart.study.record import StudyRecord, Timing, parse

SECTIONS = [
    "Accuracy over epochs", "Accuracy over labels", "Scores", "Differences", "Savings", "Mistakes", "Pretraining",
    "Data", "Costs", "Every trial", "Configuration",
]  # fmt: skip
CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@pytest.fixture(scope="module")
def report_file(tmp_path_factory):
    """The report of a study that has everything, and a trial that failed."""
    found = synthetic_study.study(
        extra=("frozen", "shuffled", "scratch-long"), failed=[("scratch", 50, 1), ("frozen", 200, 2)]
    )
    directory = synthetic_study.write(tmp_path_factory.mktemp("study"), found, synthetic_study.timing(found))
    return write_report(directory)


@pytest.fixture(scope="module")
def page(report_file):
    return Page(report_file.read_text())


def written(tmp_path, found, clock=None):
    return Page(write_report(synthetic_study.write(tmp_path, found, clock)).read_text())


# ---- one file -----------------------------------------------------------------------------------------------


def test_report_and_table_are_written_and_nothing_else(report_file):
    assert {path.name for path in report_file.parent.iterdir()} == {
        "study.json", "timing.json", "report.html", "results.csv",
    }  # fmt: skip
    assert report_file.name == "report.html"


def test_the_same_study_gives_the_same_bytes(report_file):
    before = report_file.read_bytes(), report_file.with_name("results.csv").read_bytes()
    write_report(report_file.parent)
    assert (report_file.read_bytes(), report_file.with_name("results.csv").read_bytes()) == before


def test_nothing_leaves_the_file(page, report_file):
    assert not page.names() & {"script", "img", "iframe", "object", "embed", "form", "base", "audio", "video"}
    assert {"http-equiv": "Content-Security-Policy", "content": CSP} in page.all("meta")
    links = [value for _, attributes in page.tags for key, value in attributes.items() if key in ("href", "src")]
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert not re.search(r"https?:|@import|url\((?!#)", report_file.read_text())


@pytest.mark.slow
def test_a_large_study_stays_small(tmp_path):
    labels = [f"class {i}" for i in range(60)]
    found = synthetic_study.study(
        budgets=(50, 100, 200, 400, 800, 1600, 3200, 6400), seeds=10, objectives=("causal", "masked", "masked-nsp"),
        extra=("frozen", "shuffled", "scratch-long"), labels=labels,
    )  # fmt: skip
    found["items"] = [item | {"text": "mot " * 100_000} for item in found["items"] * 40]
    for trial in found["trials"]:
        trial["curve"] = (
            [{"epoch": e / 10, "accuracy": 0.5 + (e % 7) / 100} for e in range(300)] if trial["curve"] else []
        )
        if trial["seed"] == 9:
            trial |= {"status": "failed", "error": "x" * 50_000, "accuracy": None, "macro_f1": None}
    path = write_report(synthetic_study.write(tmp_path, found))
    assert path.stat().st_size < 2_000_000


def test_a_report_that_cannot_be_written_leaves_the_old_one(report_file, monkeypatch):
    before = report_file.read_bytes()

    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(module, "report_page", broken)
    with pytest.raises(RuntimeError):
        write_report(report_file.parent)
    assert report_file.read_bytes() == before


# ---- what it says -------------------------------------------------------------------------------------------


def test_the_verdict_comes_first_and_the_sections_in_order(page):
    places = [
        page.text.index(sentence) for sentence in ("Pretraining pays here", "To match it", "With 1,600 labels TF")
    ]
    starts = [[i for i, text in enumerate(page.texts) if text == name][-1] for name in SECTIONS]
    assert places == sorted(places)
    assert starts == sorted(starts)


def test_a_score_is_written_with_its_interval(page, report_file):
    score = StudyRecord.load(report_file.parent).scores[-1].accuracy
    said = f"{100 * score.value:.1f}\xa0% ({100 * score.low:.1f} to {100 * score.high:.1f})"
    assert " ".join(said.split()) in page.text


def test_scores_stand_by_budget_in_the_order_of_the_arms(tmp_path):
    found = synthetic_study.study(budgets=(200, 50), seeds=2)
    found["scores"] = found["scores"][::-1]
    text = written(tmp_path, found).text
    table = text[text.index("Accuracy and macro-F1 by number of labels and arm") :]
    for budget in (50, 200):
        table = table[table.index(f"{budget} labels") :]
        places = [table.index(f" {arm['name']} ") for arm in found["arms"]]
        assert places == sorted(places)


def test_what_is_doubtful_in_the_rows_is_shown_with_the_data(tmp_path):
    found = synthetic_study.study(budgets=(50,), seeds=1)
    found["data"]["warnings"] = ["train: labels 'Other' (2 rows) and 'other␣' (1 row) look like one"]
    text = written(tmp_path, found).text
    assert "labels 'Other' (2 rows) and 'other␣' (1 row) look like one" in text


def test_where_macro_f1_is_the_metric_pictures_headings_and_table_say_so(tmp_path):
    found = synthetic_study.study(budgets=(50, 200), seeds=2)
    found["metric"] = "macro_f1"
    for trial in found["trials"]:
        for point in (*trial["curve"], *trial["tries"]):
            point["macro_f1"] = point.pop("accuracy") - 0.1
    text = written(tmp_path, found).text
    assert "Macro-F1 over epochs" in text
    assert "Macro-F1 over labels" in text
    assert "Mean macro-F1 on test over the seeds" in text
    assert "Differences in macro-F1" in text
    assert "Accuracy over" not in text
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert {row["measure"] for row in rows if row["record"] == "difference"} == {"macro_f1"}


def test_a_failed_trial_is_shown_with_its_error(page):
    assert "2 runs failed and are not part of the means" in page.text
    assert "scratch, 50 labels, seed 1 : the loss is not finite at step 12" in page.text
    assert page.text.count("the loss is not finite at step 12") == 4  # in the list, and among the trials
    assert page.text.count(", 1 failed") == 2


def test_leaks_costs_command_and_seeds_are_there(page):
    for said in (
        "test also in train 43", "test also in train, near-duplicates 7", "together 15,000 700,000 2.6 MB",
        "leaves out the 55 test texts", "headstart study --corpus 'fr reviews.txt'", "0, 1, 2",
        "The whole study took 4 min 11 s, 2 jobs side by side, 1 thread each", "652,800 parameters",
        "more than 1,600", "The pretraining has paid for itself after 3 fine-tunings.", "3.6 × 10¹³",
    ):  # fmt: skip
        assert said in page.text, said


def test_what_each_base_has_learned_is_told(page):
    said = "causal-s0: The base has learned: loss 2.26 where frequencies give 6.5. Frozen, it is at +30.1 points"
    assert said in page.text


def test_what_a_study_does_not_have_does_not_appear(tmp_path):
    found = synthetic_study.study(budgets=(200,), seeds=1)
    found |= {"pretraining": [], "differences": [], "savings": [], "break_even": None, "confusion": [], "items": [],
              "verdict": []}  # fmt: skip
    found["data"] |= {"corpus": [], "leaks": {}, "leaked_test_rows": 0}
    for score in found["scores"]:
        score["accuracy_without_leaks"] = None
    page = written(tmp_path, found)
    for name in (
        "Pretraining",
        "Differences",
        "Savings",
        "Mistakes",
        "Without leaks",
        "Leaks",
        "Unlabelled",
    ):
        assert not re.search(rf"\b{name}\b", page.text), name
    assert "This study has no verdict." in page.text
    assert "No times were measured." in page.text


def test_a_study_in_which_everything_failed_has_a_page(tmp_path):
    found = synthetic_study.study(seeds=1)
    found["trials"] = [t | {"status": "failed", "error": "no", "accuracy": None, "curve": []} for t in found["trials"]]
    none = dict.fromkeys(("accuracy", "macro_f1", "accuracy_without_leaks"))
    found["scores"] = [s | {"seeds": 0, "failed": 1, **none} for s in found["scores"]]
    found["differences"] = []
    assert "12 runs failed" in written(tmp_path, found).text


def test_many_classes_are_told_by_their_most_frequent_mistakes(tmp_path):
    found = synthetic_study.study(labels=[f"c{i}" for i in range(20)])
    found["confusion"][0]["matrix"][3][5] = 9_876
    page = written(tmp_path, found)
    assert "majority: the most frequent mistakes" in page.text
    assert "c3 c5 9,876" in page.text


def test_partial_times_are_shown_as_far_as_they_go(tmp_path):
    page = written(tmp_path, synthetic_study.study(), {"seconds": 90, "trials": {"scratch-b50-s0": 2.5}})
    assert "The whole study took 1 min 30 s." in page.text
    assert "2.5 s" in page.text


def test_times_that_cannot_be_read_are_said_to_be_missing(tmp_path):
    synthetic_study.write(tmp_path, synthetic_study.study())
    (tmp_path / "timing.json").write_text("{")
    with pytest.raises(IntegrityError):
        Timing.load(tmp_path)
    assert (
        "The measured times are missing: timing.json is not what was written"
        in Page(write_report(tmp_path).read_text()).text
    )


def test_the_kept_model_is_told_with_the_mean_of_its_seeds(tmp_path):
    content = synthetic_study.study()
    accuracy = {"value": 0.8125, "low": 0.79, "high": 0.83}
    content["kept_model"] = {"arm": "combined", "kind": "combined", "budget": 1600, "accuracy": accuracy}
    synthetic_study.write(tmp_path, content)
    words = write_report(tmp_path).read_text()
    assert "the best arm on valid, combined with 1,600 labels" in words
    assert "81.2" in words.split("Expect the mean of its seeds")[1][:40]


def test_only_a_budget_of_every_row_is_called_all_labels(tmp_path):
    found = synthetic_study.study()
    found["data"]["train"]["rows"] = max(found["budgets"])
    assert f"With all {max(found['budgets']):,} labels:" in written(tmp_path, found).text
    found["data"]["train"]["rows"] += 1
    assert f"With {max(found['budgets']):,} labels:" in written(tmp_path, found).text


def test_a_part_of_the_configuration_without_settings_has_no_heading(tmp_path):
    found = synthetic_study.study()
    found["config"] = {"study": {"preset": "lab"}, "model": {}, "finetune": {"epochs": 5}}
    html = write_report(synthetic_study.write(tmp_path, found)).read_text()
    assert re.findall("<h4>(.*?)</h4>", html)[-2:] == ["study", "finetune"]


# ---- for every reader ---------------------------------------------------------------------------------------


def test_tags_are_closed_and_ids_are_unique(page):
    assert page.unclosed == []
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in page.all("section"):
        assert attributes["aria-labelledby"] in ids
    for attributes in page.all("a"):
        assert attributes["href"][1:] in ids


def test_headings_go_down_one_step_at_a_time(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_landmarks_captions_and_words_for_pictures(page):
    assert page.all("html") == [{"lang": "en"}]
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.all(landmark)) == 1
    assert len(page.all("caption")) == len(page.all("table"))
    pictures = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert len(pictures) == 7
    assert all(re.search(r"\d", picture["aria-label"]) for picture in pictures)
    assert all(svg.get("aria-hidden") == "true" for svg in page.all("svg"))
    assert all(th.get("scope") in ("col", "row", "rowgroup") for th in page.all("th"))


def colours_of(css, block):
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", css.split(block, 1)[1].split("}", 1)[0]))


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_measured_as_the_guidelines_do():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("block", ["\n:root {", "(prefers-color-scheme: dark) {\n  :root {"])
def test_text_and_lines_stand_out_by_day_and_by_night(block):
    css = (Path(module.__file__).parent / "template.css").read_text()
    colours = colours_of(css, block)
    for name in ("ink", "muted", "accent"):
        for ground in ("paper", "tint", "warn"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for name in ("blue", "vermilion", "green", "purple", "sky", "amber", "yellow", "muted"):
        assert contrast(colours[name], colours["paper"]) >= 3, name
    assert contrast(colours["failed"], colours["paper"]) >= 4.5


# ---- an unfinished study --------------------------------------------------------------------------------------------


def test_an_unfinished_study_is_called_so(tmp_path):
    (tmp_path / "study.toml").write_text("")
    with refused("missing", str(tmp_path), "study.json", "not finished"):
        write_report(tmp_path)


def test_many_classes_are_the_largest_and_the_rest():
    classes = {f"c{number}": number for number in range(1, 7)}
    assert class_shares(classes, most=6) == list(classes.items())
    assert class_shares(classes, most=3) == [("c6", 6), ("c5", 5), ("4 others", 10)]


def test_settings_are_titled_lists():
    config = {"a": {"x": 1, "y": [2, "z"]}, "b": [{"k": None}, {"k": True}], "empty": {}}
    assert settings(config) == [
        ("a", [("x", "1"), ("y", "2, z")]), ("b 1", [("k", "–")]), ("b 2", [("k", "true")]),
    ]  # fmt: skip


def test_values_are_plain():
    assert [plain(value) for value in ("", [], 0.5, "é", {"a": "é"})] == ["–", "–", "0.5", "é", '{"a": "é"}']


# ---- results.csv: every number once, and no formula for a spreadsheet ---------------------------------------


def rows_of(found):
    text = results_csv(parse(StudyRecord, found, "study.json"))
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
    assert {(row["arm"], row["budget"], row["seed"], row["value"]) for row in failed} == {("scratch", "50", "1", "")}
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
