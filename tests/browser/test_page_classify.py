"""The tab Classify: it shows what `headstart predict` says, and the attributions that the package computes."""

import json

import commands
import pytest
import tiny_runs

from headstart.inference.attribution import attribution_of

TEXT = "une histoire vraiment belle."


def predicted(capsys, tmp_path, kind, row):
    """What the command line says about a text or a pair."""
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    answer = commands.invoke(capsys, ["predict", str(tiny_runs.path_of(kind)), str(file)])
    assert answer.code == 0
    return json.loads(answer.out)


def shown_shares(browser, panel="#classify"):
    """The bars' names with the numbers beside them."""
    numbers = [float(text.split()[0].strip("<>")) for text in browser.texts(f"{panel} .bars .number")]
    return dict(zip(browser.texts(f"{panel} .bars dt"), numbers, strict=True))


def test_the_bars_are_those_of_predict(page, capsys, tmp_path):
    browser = page.open("classify", "classification")
    said = page.submit("classify", TEXT)
    told = predicted(capsys, tmp_path, "classification", {"text": TEXT})
    assert said.startswith(f"{told['label']}, ")
    assert shown_shares(browser) == pytest.approx({k: 100 * v for k, v in told["probabilities"].items()}, abs=0.051)
    assert browser.texts("#classify .bars .chosen dt") == [told["label"]]


@pytest.mark.parametrize("method", ["leave-one-out", "gradient"])
def test_tokens_have_the_attributions_of_the_package(page, method):
    browser = page.open("classify", "classification")
    page.submit("classify", TEXT)
    browser.click(f"#classify input[value={method}]")
    page.answered("classify")
    found = attribution_of(tiny_runs.run_of("classification"), TEXT, tiny_runs.MACHINE, method=method)
    assert {"leave-one-out": "Leaving out", "gradient": "Gradient"}[method] in browser.texts("#classify figcaption")[0]
    assert browser.texts("#classify .tokens .token span") == [token.text.strip() or "␣" for token in found.tokens]
    numbers = [float(text.replace("−", "-")) for text in browser.texts("#classify .tokens small")]
    largest = max(abs(token.attribution) for token in found.tokens)
    assert numbers == pytest.approx([token.attribution for token in found.tokens], abs=max(0.0051, largest / 19))
    assert max(map(abs, numbers)) > 0
    kinds = browser.ask("[...document.querySelectorAll('#classify .tokens .token')].map(one => one.className)")
    assert ["against" in kind for kind in kinds] == [token.attribution < 0 for token in found.tokens]


def test_a_token_tells_its_number_by_mouse_and_by_keyboard(page):
    browser = page.open("classify", "classification")
    page.submit("classify", TEXT)
    browser.click("#classify .tokens .token:nth-of-type(3)")
    third = browser.find("#classify .told").text
    assert "for" in third or "against" in third
    browser.press("\ue014")  # the arrow to the right
    label = browser.ask("document.activeElement.getAttribute('aria-label')")
    fourth = browser.find("#classify .told").text
    assert fourth != third
    assert fourth.replace("“", "").replace("” ", ", ") == label
    assert browser.ask("document.querySelectorAll('#classify .tokens [tabindex=\"0\"]').length") == 1
    assert browser.texts_seen("#classify .tokens small") == []
    browser.click("#classify .tick")
    assert len(browser.texts_seen("#classify .tokens small")) == len(browser.texts("#classify .tokens .token"))


def test_pairs_have_a_second_text(page, capsys, tmp_path):
    browser = page.open("classify", "classification")
    assert not browser.find("#classify .second").is_displayed()
    page.open("classify", "pairs")
    page.submit("classify", "un livre triste.", "la fin est drôle.")
    told = predicted(capsys, tmp_path, "pairs", {"text_a": "un livre triste.", "text_b": "la fin est drôle."})
    assert shown_shares(browser) == pytest.approx({k: 100 * v for k, v in told["probabilities"].items()}, abs=0.051)


def test_several_labels_and_numbers_have_their_own_words(page, capsys, tmp_path):
    browser = page.open("classify", "multilabel")
    said = page.submit("classify", TEXT)
    told = predicted(capsys, tmp_path, "multilabel", {"text": TEXT})
    assert said == (", ".join(told["labels"]) or "None of the labels")
    assert set(browser.texts("#classify .bars dt")) == {"livre", "fin"}
    page.open("classify", "regression")
    said = page.submit("classify", TEXT)
    told = predicted(capsys, tmp_path, "regression", {"text": TEXT})
    assert float(said) == pytest.approx(told["value"], rel=1e-3)
    assert "the value" in browser.texts("#classify figcaption")[0]


def test_a_text_that_is_cut_is_told(page):
    browser = page.open("classify", "classification")
    page.submit("classify", TEXT * 10)
    assert "longer than the 16 tokens" in browser.texts("#classify .note")[0]
