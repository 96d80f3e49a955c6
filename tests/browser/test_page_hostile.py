"""Hostile text in everything that a server could say: it is shown, and nothing of it runs.

The stub sends no policy, so that what holds here holds by the page alone.
"""

import page_driving
import pytest
import stub_page

PAYLOAD = (
    "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>\"'></textarea></title>"
    '<svg onload="window.ran = 1"><iframe src="http://evil.example/">${window.ran = 1}{{7*7}}'
)
TOKEN = {
    "text": " " + PAYLOAD,
    "is_special": False,
    "attribution": 0.5,
    "probability": 0.5,
    "rank": 2,
    "token": 1,
}
RUN = {
    **stub_page.RUN, "name": PAYLOAD, "objective": "causal" + PAYLOAD, "labels": [PAYLOAD], "start": PAYLOAD,
    "can": ["classify", "generate", "score", "translate", "attention"], "loaded": False,
}  # fmt: skip
MAP = {
    "rows": [TOKEN] * 2,
    "columns": [TOKEN] * 2,
    "weights": [[[[1, 0], [0.5, 0.5]]]],
    "mask": [[True, False], [True, True]],
}
ANSWERS = {
    "/api/runs": {"version": PAYLOAD, "runs": [RUN, {**RUN, "name": "2" + PAYLOAD}], "studies": [{"name": PAYLOAD}],
                  "limits": stub_page.LIMITS},
    "/api/classify": {"label": PAYLOAD, "probabilities": {PAYLOAD: 0.7}, "is_cut": True,
                      "attribution": {"method": PAYLOAD, "of": PAYLOAD, "unit": PAYLOAD, "tokens": [TOKEN] * 2}},
    "/api/generate": lambda: iter([{**TOKEN, "alternatives": [TOKEN]},
                                   {"stop": PAYLOAD, "token_count": 1, "notes": [PAYLOAD]}]),
    "/api/score": {"tokens": [TOKEN] * 2, "loss": 1.0, "perplexity": 2.7},
    "/api/translate": {"text": PAYLOAD, "score": -1.0, "source": [TOKEN] * 2, "target": [TOKEN],
                       "weights": [[0.5, 0.5]],
                       "alignment": [{"source": 0, "target": 0, "weight": 0.5}], "is_cut": True, "notes": [PAYLOAD]},
    "/api/attention": {"maps": [{"kind": kind, **MAP} for kind in ("self", PAYLOAD)], "is_cut": True,
                       "positions": {"kind": PAYLOAD, "values": [[1.0, -1.0], [0.0, 0.5]]}},
}  # fmt: skip
MADE = """[window.ran, document.scripts.length,
  document.querySelectorAll('main img, main iframe:not(#study-report), main script').length]"""


@pytest.fixture
def page(browser, tmp_path):
    with (
        stub_page.serving(ANSWERS) as (_, port),
        page_driving.checked_page(browser, port, tmp_path) as found,
    ):
        yield found


@pytest.mark.parametrize("width", [1200, pytest.param(390, marks=pytest.mark.slow)])
def test_nothing_that_is_shown_runs(page, browser, width):
    page.open(width=width)
    for tab in ("classify", "complete", "translate", "attention", "compare"):
        browser.click(f"#tab-{tab}")
        page.submit(tab, PAYLOAD)
        assert browser.texts(f"#{tab} .problem p") == []
        assert PAYLOAD in browser.find(f"#{tab}").get_attribute("textContent")
        browser.ask(f"document.querySelectorAll('#{tab} .token').forEach(one => one.click())")
        assert browser.ask("document.documentElement.scrollWidth") == width
    assert browser.ask(MADE) == [None, 1, 0]


def test_a_hostile_error_is_words(browser, tmp_path):
    failing = [{"error": {"what": PAYLOAD, "fix": PAYLOAD}}]
    with (
        stub_page.serving({**ANSWERS, "/api/generate": lambda: iter(failing)}) as (_, port),
        page_driving.checked_page(browser, port, tmp_path) as page,
    ):
        page.open("complete")
        page.submit("complete", "x")
        assert browser.texts("#complete .problem p") == [PAYLOAD, PAYLOAD]
        assert browser.ask(MADE) == [None, 1, 0]


def test_a_hostile_report_is_shut_in(browser):
    report = b"<p id=there>A report</p><script>parent.ran = 1; top.location = 'http://evil.example/'</script>"
    runs = {**ANSWERS["/api/runs"], "studies": [{"name": "books"}]}
    answers = {"/api/runs": runs, "/api/studies/books/report": report}
    with stub_page.serving({**ANSWERS, **answers}) as (_, port):
        page = page_driving.Page(browser, f"http://127.0.0.1:{port}/")
        page.open("study")
        browser.wait("!document.getElementById('study-report').hidden")
        assert browser.ask("[window.ran, location.port]") == [None, str(port)]
        assert [one for one in browser.requests() if "evil" in one] == []
