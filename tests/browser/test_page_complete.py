"""The tab Complete: it writes what `headstart generate` writes, and stops when it is told to."""

import contextlib
import itertools

import commands
import page_driving
import pytest
import stub_page
import tiny_runs

PROMPT = "une histoire"
TOKEN = {
    "text": " mot", "token": 5, "probability": 0.25, "alternatives": [{"text": " livre", "probability": 0.5}],
}  # fmt: skip


def settings(browser, **values):
    for name, value in values.items():
        browser.write(f"#complete [name={name}]", str(value))


def test_it_writes_what_generate_writes(page, capsys):
    browser = page.open("complete", "causal")
    settings(browser, temperature=0.9, top_k=40, top_p=0.9, seed=3, max_tokens=12)
    said = page.submit("complete", PROMPT)
    flags = ["--temperature=0.9", "--top-k=40", "--top-p=0.9", "--seed=3", "--max-tokens=12"]
    told = commands.invoke(capsys, ["generate", str(tiny_runs.path_of("causal")), PROMPT, *flags])
    assert told.code == 0
    written = browser.ask(
        """(() => { const copy = document.querySelector('#complete .tokens').cloneNode(true);
        copy.querySelectorAll('small').forEach(one => one.remove()); return copy.textContent })()"""
    )
    assert written.split() == told.out.split()
    assert f"{len(browser.texts('#complete .tokens .token'))} token" in said


def test_each_token_has_its_probability_and_what_else_was_likely(page):
    browser = page.open("complete", "causal")
    settings(browser, max_tokens=6)
    page.submit("complete", PROMPT)
    shares = browser.ask(
        "[...document.querySelectorAll('#complete .tokens .token')].map(one => +one.style.getPropertyValue('--share'))"
    )
    assert all(0 < share <= 1 for share in shares)
    browser.click("#complete .tokens .token:nth-of-type(2)")
    first = browser.find("#complete .pane").text
    assert f"{100 * shares[1]:.1f} %" in first or "<" in first
    assert len(browser.texts("#complete .pane .bars dt")) in (5, 6)
    browser.hover("#complete .tokens .token:nth-of-type(4)")
    hovered = browser.find("#complete .pane").text
    assert f"{100 * shares[3]:.1f} %" in hovered or "<" in hovered
    assert len({first, hovered}) == 2
    browser.press("\ue014")  # from the token that was clicked to the third
    assert browser.find("#complete .pane").text not in (first, hovered)
    assert "most probable" in browser.ask("document.activeElement.getAttribute('aria-label')")


@pytest.fixture
def stubbed(browser, tmp_path):
    """The page of a server that writes what the test gives it."""

    @contextlib.contextmanager
    def stubbed(lines):
        with (
            stub_page.serving({"/api/generate": lines}) as (stub, port),
            page_driving.checked_page(browser, port, tmp_path) as page,
        ):
            page.open("complete")
            yield stub, page

    return stubbed


def test_stop_ends_the_request(browser, stubbed):
    with stubbed(lambda: itertools.repeat(TOKEN)) as (stub, page):
        browser.write("#complete textarea", "on and on")
        browser.click("#complete .go")
        browser.wait("document.querySelectorAll('#complete .tokens .token').length > 5")
        browser.click("#complete .stop")
        assert page.answered("complete") == "Stopped."
        assert stub.is_abandoned.wait(10)
        assert not browser.find("#complete .stop").is_displayed()
        assert len(browser.texts("#complete .tokens .token")) > 5


def test_an_error_in_the_middle_of_a_stream_is_told(browser, stubbed):
    failing = [TOKEN, {"error": {"what": "the memory is full", "fix": "ask for less"}}]
    with stubbed(lambda: iter(failing)) as (_, page):
        page.submit("complete", "on")
        assert browser.texts("#complete .problem p") == ["The memory is full", "Ask for less"]
        assert browser.texts("#complete .tokens .token span") == ["mot"]


def test_a_number_out_of_bounds_is_not_sent(page):
    browser = page.open("complete", "causal")
    settings(browser, max_tokens=513)
    browser.click("#complete .go")
    assert browser.ask("document.querySelector('#complete form').checkValidity()") is False
    assert [address for address in browser.requests() if "generate" in address] == []


def test_notes_of_the_run_are_shown(page):
    browser = page.open("complete", "causal")
    settings(browser, max_tokens=40)
    page.submit("complete", PROMPT)
    assert any("trained on 16 tokens" in note for note in browser.texts("#complete .note"))
