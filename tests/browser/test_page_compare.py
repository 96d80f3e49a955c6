"""The tabs Compare and Study: two runs side by side, and a report in a frame that can do nothing."""

import json

import commands
import pytest
import tiny_runs

from headstart.inference.perplexity import score_tokens

TEXT = "une histoire vraiment belle."


def test_both_runs_say_what_predict_says(page, capsys, tmp_path):
    browser = page.open("compare", "classification")
    browser.choose("#compare-other", "char")
    said = page.submit("compare", TEXT)
    (tmp_path / "text.txt").write_text(TEXT + "\n", encoding="utf-8")
    labels = []
    for number, kind in ((1, "classification"), (2, "char")):
        column = f"#compare .pair section:nth-of-type({number})"
        told = commands.invoke(capsys, ["predict", str(tiny_runs.path_of(kind)), str(tmp_path / "text.txt")])
        answer = json.loads(told.out)
        labels.append(answer["label"])
        assert browser.texts(f"{column} h3") == [kind]
        start = {"classification": "from the run causal", "char": "from scratch"}[kind]
        assert browser.texts(f"{column} p.quiet")[0] == start
        assert browser.texts(f"{column} .legend li")[2].endswith("on one scale for both")
        assert browser.texts(f"{column} .answer")[0].startswith(answer["label"])
        numbers = [float(text.split()[0]) for text in browser.texts(f"{column} .bars .number")]
        assert numbers == pytest.approx([100 * v for v in answer["probabilities"].values()], abs=0.051)
        assert browser.texts(f"{column} .tokens .token") != []
    assert said == (
        f"Both say {labels[0]}."
        if labels[0] == labels[1]
        else f"classification says {labels[0]}, char says {labels[1]}."
    )


def test_language_models_are_compared_by_their_surprise(page):
    browser = page.open("compare", "causal")
    said = page.submit("compare", TEXT)
    scores = [score_tokens(tiny_runs.run_of(kind), TEXT, tiny_runs.MACHINE) for kind in ("causal", "rotary")]
    shown = [float(text.split()[1].replace(",", "")) for text in browser.texts("#compare .answer")]
    assert shown == pytest.approx([score.perplexity for score in scores], rel=0.006)
    less = "causal" if scores[0].perplexity <= scores[1].perplexity else "rotary"
    assert said.startswith(f"{less} is less surprised: perplexity") or said.startswith("Both")
    assert not browser.find("#compare fieldset").is_displayed()


def test_only_runs_of_a_kind_are_compared(page):
    browser = page.open("compare", "classification")
    assert browser.texts("#compare-other option") == ["char", "multilabel", "regression"]
    page.open("", "pairs")
    assert "Compare" not in browser.texts_seen("[role=tab]")


def test_the_report_of_a_study_is_in_a_frame_that_can_do_nothing(page, served):
    browser = page.open("study")
    browser.wait("!document.getElementById('study-report').hidden")
    report = served.get("/api/studies/books/report").body.decode()
    shown = browser.ask("document.getElementById('study-report').srcdoc")
    assert shown.replace("about:srcdoc#", "#") == report
    assert browser.ask("document.getElementById('study-report').getAttribute('sandbox')") == ""
    assert browser.ask("document.getElementById('study-report').title").endswith("books")


def test_the_report_is_walked_through_inside_its_frame(page):
    browser = page.open("study")
    browser.wait("!document.getElementById('study-report').hidden")
    frame = browser.find("#study-report")
    browser.driver.switch_to.frame(frame)
    try:
        browser.click("nav a[href$='#scores']")
        top = browser.ask("document.getElementById('scores').getBoundingClientRect().top")
    finally:
        browser.driver.switch_to.default_content()
    assert 0 <= top < 100
