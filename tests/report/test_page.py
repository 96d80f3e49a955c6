"""The report: one small file that asks for nothing, says everything, and is the same for the same study."""

import itertools
import json
import re
from pathlib import Path

import pytest
import synthetic_study
from commands import ask
from page_reading import Page

import headstart.report.page as module
from headstart.cli.main import VERBS
from headstart.errors import IntegrityError, UserError
from headstart.report.page import report_page, write_report
from headstart.report.study_file import read_study, read_timing
from headstart.report.wording import duration, estimate, operations, percent, points, probability, size

SECTIONS = [
    "Accuracy over epochs", "Accuracy over labels", "Scores", "Differences", "Head start", "Mistakes", "Pretraining",
    "Data", "Costs", "Every trial", "Configuration",
]  # fmt: skip
CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The report of a study that has everything, and a trial that failed."""
    found = synthetic_study.study(
        extra=("frozen", "shuffled", "scratch-long"), failed=[("scratch", 50, 1), ("frozen", 200, 2)]
    )
    directory = synthetic_study.write(tmp_path_factory.mktemp("study"), found, synthetic_study.timing(found))
    return write_report(directory)


@pytest.fixture(scope="module")
def page(whole):
    return Page(whole.read_text())


def written(tmp_path, found, clock=None):
    return Page(write_report(synthetic_study.write(tmp_path, found, clock)).read_text())


def headings(page, level):
    return [tag for tag in page.tags if tag[0] == level]


# ---- one file -----------------------------------------------------------------------------------------------


def test_report_and_table_are_written_and_nothing_else(whole):
    assert {path.name for path in whole.parent.iterdir()} == {
        "study.json", "timing.json", "report.html", "results.csv",
    }  # fmt: skip
    assert whole.name == "report.html"


def test_the_same_study_gives_the_same_bytes(whole):
    before = whole.read_bytes(), whole.with_name("results.csv").read_bytes()
    write_report(whole.parent)
    assert (whole.read_bytes(), whole.with_name("results.csv").read_bytes()) == before


def test_nothing_leaves_the_file(page, whole):
    assert not page.names() & {"script", "img", "iframe", "object", "embed", "form", "base", "audio", "video"}
    assert {"http-equiv": "Content-Security-Policy", "content": CSP} in page.all("meta")
    links = [
        value for _, attributes in page.tags for key, value in attributes.items() if key in ("href", "src")
    ]
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert not re.search(r"https?:|@import|url\((?!#)", whole.read_text())


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


def test_a_report_that_cannot_be_written_leaves_the_old_one(whole, monkeypatch):
    before = whole.read_bytes()

    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(module, "report_page", broken)
    with pytest.raises(RuntimeError):
        write_report(whole.parent)
    assert whole.read_bytes() == before


# ---- what it says -------------------------------------------------------------------------------------------


def test_the_verdict_comes_first_and_the_sections_in_order(page):
    places = [
        page.text.index(sentence)
        for sentence in ("Pretraining pays here", "To match it", "With 1,600 labels TF")
    ]
    starts = [[i for i, text in enumerate(page.texts) if text == name][-1] for name in SECTIONS]
    assert places == sorted(places)
    assert starts == sorted(starts)


def test_a_score_is_written_with_its_interval(page, whole):
    score = read_study(whole.parent).scores[-1].accuracy
    said = f"{100 * score.value:.1f}\xa0% ({100 * score.low:.1f} to {100 * score.high:.1f})"
    assert " ".join(said.split()) in page.text


def test_a_failed_trial_is_shown_with_its_error(page):
    assert "2 runs failed and are not part of the means" in page.text
    assert "scratch, 50 labels, seed 1 : the loss is not finite at step 12" in page.text
    assert page.text.count("the loss is not finite at step 12") == 4  # in the list, and among the trials
    assert page.text.count(", 1 failed") == 2


def test_leaks_costs_command_and_seeds_are_there(page):
    for said in (
        "test also in train 43", "test also in train, nearly the same 7", "together 15,000 700,000 2.6 MB",
        "leaves out the 55 test texts", "headstart study --corpus 'fr reviews.txt'", "0, 1, 2",
        "The whole study took 4 min 11 s, 2 jobs side by side, 1 thread each", "652,800 parameters",
        "more than 1,600", "The pretraining has paid for itself after 3 fine-tunings.", "3.6 × 10¹³",
    ):  # fmt: skip
        assert said in page.text, said


def test_what_a_study_does_not_have_does_not_appear(tmp_path):
    found = synthetic_study.study(budgets=(200,), seeds=1)
    found |= {"pretraining": [], "differences": [], "head_start": [], "break_even": None, "confusion": [], "items": [],
              "power": None, "verdict": []}  # fmt: skip
    found["data"] |= {"corpus": [], "leaks": {}, "leaked_test_rows": None, "valid": None}
    for score in found["scores"]:
        score["accuracy_without_leaks"] = None
    page = written(tmp_path, found)
    for name in (
        "Pretraining",
        "Differences",
        "Head start",
        "Mistakes",
        "Without leaks",
        "Leaks",
        "Unlabelled",
    ):
        assert not re.search(rf"\b{name}\b", page.text), name
    assert "This study came to no verdict." in page.text
    assert "No times were measured." in page.text


def test_a_study_in_which_everything_failed_has_a_page(tmp_path):
    found = synthetic_study.study(seeds=1)
    found["trials"] = [
        t | {"status": "failed", "error": "no", "accuracy": None, "curve": []} for t in found["trials"]
    ]
    nothing = {"value": None, "low": None, "high": None}
    found["scores"] = [
        s | {"seeds": 0, "failed": 1, "accuracy": nothing, "macro_f1": None} for s in found["scores"]
    ]
    found["differences"] = [
        d | {"value": None, "low": None, "high": None, "p": None} for d in found["differences"]
    ]
    assert "12 runs failed" in written(tmp_path, found).text


def test_many_classes_are_told_by_their_commonest_mistakes(tmp_path):
    found = synthetic_study.study(labels=[f"c{i}" for i in range(20)])
    found["confusion"][0]["matrix"][3][5] = 9_876
    page = written(tmp_path, found)
    assert "majority: the commonest mistakes" in page.text
    assert "c3 c5 9,876" in page.text


def test_partial_times_are_shown_as_far_as_they_go(tmp_path):
    page = written(tmp_path, synthetic_study.study(), {"seconds": 90, "trials": {"scratch-b50-s0": 2.5}})
    assert "The whole study took 1 min 30 s." in page.text
    assert "2.5 s" in page.text


def test_times_that_cannot_be_read_are_said_to_be_missing(tmp_path):
    synthetic_study.write(tmp_path, synthetic_study.study())
    (tmp_path / "timing.json").write_text("{")
    with pytest.raises(IntegrityError):
        read_timing(tmp_path)
    assert (
        "The measured times are missing: timing.json cannot be read"
        in Page(write_report(tmp_path).read_text()).text
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (percent(0.81249), "81.2\xa0%"), (percent(None), "–"), (percent(-0.00001), "0.0\xa0%"), (points(0.12), "+12.0"),
        (points(-0.012), "−1.2"), (points(-0.0001), "−0.0"), (points(-0.0), "+0.0"), (probability(0.0004), "< 0.001"),
        (probability(1.0), "1.000"),
        (operations(2.1e12), "2.1\xa0×\xa010¹²"), (operations(950), "950"), (operations(9.99e12), "1.0\xa0×\xa010¹³"),
        (duration(3.14), "3.1\xa0s"), (duration(59.99), "60.0\xa0s"), (duration(251.3), "4\xa0min 11\xa0s"),
        (duration(7500), "2\xa0h 05\xa0min"), (duration(3599.7), "1\xa0h 00\xa0min"), (size(1_500_000), "1.5\xa0MB"),
        (size(12), "12\xa0bytes"), (estimate(None), "–"),
    ],
)  # fmt: skip
def test_numbers_are_written_so(said, expected):
    assert said == expected


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


# ---- what is no study ---------------------------------------------------------------------------------------


def test_a_directory_without_a_study_says_what_is_expected(tmp_path):
    with pytest.raises(UserError, match=r"no study\.json") as caught:
        write_report(tmp_path)
    assert "headstart study --out" in caught.value.fix
    with pytest.raises(UserError, match="not a directory"):
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
    "trials", "scores", "differences", "head_start", "confusion", "items",
]  # fmt: skip


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(tmp_path, name):
    found = synthetic_study.study(budgets=(50,), seeds=1)
    del found[name]
    synthetic_study.write(tmp_path, found)
    with pytest.raises(IntegrityError, match=f"{name} is missing"):
        write_report(tmp_path)


def test_a_field_of_another_type_is_named_with_its_place(tmp_path):
    found = synthetic_study.study(budgets=(50,), seeds=1)
    found["trials"][2]["accuracy"] = "good"
    synthetic_study.write(tmp_path, found)
    with pytest.raises(IntegrityError, match=r"trials\[2\]\.accuracy is not a number"):
        write_report(tmp_path)


def test_another_format_is_refused(tmp_path):
    synthetic_study.write(tmp_path, synthetic_study.study(budgets=(50,), seeds=1) | {"format": 2})
    with pytest.raises(IntegrityError, match="has format 2, this version reads 1"):
        write_report(tmp_path)


def test_numbers_that_are_not_finite_do_not_exist(tmp_path):
    found = synthetic_study.study(budgets=(50, 200), seeds=1)
    found["scores"][3]["accuracy"]["low"] = float("nan")
    found["trials"][4]["accuracy"] = float("inf")
    text = write_report(synthetic_study.write(tmp_path, found)).read_text()
    assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)


# ---- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def headstart(monkeypatch, capsys):
    monkeypatch.setitem(VERBS, "report", "headstart.cli.report:report")
    return lambda *line: ask(capsys, ["report", *map(str, line)])


def test_the_verb_writes_the_report_again(tmp_path, headstart):
    synthetic_study.write(tmp_path, synthetic_study.study(budgets=(50,), seeds=1))
    answer = headstart(tmp_path, "--json")
    assert answer.code == 0
    assert json.loads(answer.out) == {
        "report": str(tmp_path / "report.html"), "results": str(tmp_path / "results.csv"),
    }  # fmt: skip
    expected = report_page(read_study(tmp_path))
    assert (tmp_path / "report.html").read_text() == expected
    assert "wrote" in headstart(tmp_path).out


def test_the_verb_has_exit_codes(tmp_path, headstart):
    answer = headstart(tmp_path)
    assert answer.code == 2
    assert "fix: give the directory" in answer.err
    (tmp_path / "study.json").write_text("{}")
    assert headstart(tmp_path).code == 3


def test_an_unfinished_study_is_called_so(tmp_path):
    (tmp_path / "study.toml").write_text("")
    with pytest.raises(UserError, match="not finished"):
        write_report(tmp_path)
