"""The tab Translate: it shows what `headstart translate` writes, and draws the attention between the two texts."""

import json

import commands
import pytest
import translators

TEXT = "le livre est très long."
WIDTHS = "[...document.querySelectorAll('#translate .tie')].map(one => +one.getAttribute('stroke-width'))"


@pytest.fixture
def printed(capsys, tmp_path):
    """What the command line says about the text."""
    (tmp_path / "text.txt").write_text(TEXT + "\n", encoding="utf-8")
    answer = commands.invoke(
        capsys, ["translate", str(translators.path_of()), str(tmp_path / "text.txt"), "--beam", "5", "--json"]
    )
    assert answer.code == 0
    return json.loads(answer.out)


def test_it_shows_the_translation_and_its_tokens(page, printed):
    browser = page.open("translate", "translator-joint")
    assert page.submit("translate", TEXT) == printed["text"]
    written = browser.texts("#translate .alignment .tokens:last-child .token")
    assert written == [token.strip() or "␣" for token in printed["tokens"]]


def test_lines_are_as_thick_as_the_weights(page, served):
    browser = page.open("translate", "translator-joint")
    page.submit("translate", TEXT)
    status, answer = served.post("/api/translate", run="translator-joint", text=TEXT)
    assert status == 200
    best = {(link["source"], link["target"]) for link in answer["alignment"]}
    weights = [
        weight
        for target, row in enumerate(answer["weights"])
        for source, weight in enumerate(row)
        if weight >= 0.01 or (source, target) in best
    ]
    assert browser.ask(WIDTHS) == pytest.approx([max(0.4, 9 * weight) for weight in weights], abs=0.006)
    assert len(browser.texts("#translate .tie.best")) == len(answer["alignment"])
    lines = browser.ask("[...document.querySelectorAll('#translate .tie')].map(one => one.getTotalLength())")
    assert min(lines) > 30


@pytest.mark.parametrize(("side", "width"), [("last", 1200), ("first", 1200), ("last", 390)])
def test_a_token_lights_its_own_links(page, side, width):
    browser = page.open("translate", "translator-joint", width=width)
    page.submit("translate", TEXT)
    strip = f"#translate .tokens:nth-of-type({2 if side == 'last' else 1})"
    browser.click(f"{strip} .token:nth-of-type(2)")
    lit, all_ties = (
        browser.ask(f"[...document.querySelectorAll('#translate .tie{kind}')].length") for kind in (".on", "")
    )
    assert 0 < lit < all_ties
    shares = "one => +one.style.getPropertyValue('--share') > 0.01"
    tokens = "[...document.querySelectorAll('#translate .alignment .token')]"
    assert lit == browser.ask(f"{tokens}.filter({shares}).length")
    told = "attends to" if side == "last" else "is attended to by"
    assert told in browser.find("#translate .told").text
    assert browser.ask("document.documentElement.scrollWidth") == width
