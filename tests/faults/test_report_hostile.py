"""Text made to harm, in every field of a study: it is read in the report and in the table, and does nothing there."""

import csv
import io
import re
import unicodedata

import pytest
import synthetic_study
from markupsafe import Markup
from page_reading import Page

from headstart.report import figures
from headstart.report.page import write_report

PAYLOADS = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "</title></textarea></svg><svg onload=alert(1)>",
    "]]><script>alert(1)</script>",
    "--><script>alert(1)</script><!--",
    "{{ 7 * 191 }}{% raw %}",
    "javascript:alert(1)",
    "url(//evil.example/x);color:red}",
    "$\\frac{1}{0}$ $x^{",
    "\u202egnp.exe\u2066\u200f",
    "\x00\x07\x1b[31m\x7f\x9b",
    "\ud800 lone",
    "=HYPERLINK(\"http://evil.example\";\"x\")",
    "a\r\nb\tc",
]  # fmt: skip
ALLOWED_TAGS = {
    "html", "head", "meta", "title", "link", "style", "body", "a", "div", "header", "h1", "h2", "h3", "h4", "b", "p",
    "dl", "dt", "dd", "nav", "ul", "li", "main", "section", "figure", "figcaption", "span", "svg", "g", "defs", "path",
    "use", "text", "clippath", "rect", "table", "caption", "thead", "tbody", "tr", "th", "td", "small", "strong",
    "details", "summary", "blockquote", "i", "pre", "code", "footer",
}  # fmt: skip
ALLOWED_ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "rel", "href", "class", "id", "role", "aria-label",
    "aria-labelledby", "aria-hidden", "focusable", "viewbox", "d", "stroke", "stroke-width", "stroke-dasharray", "fill",
    "style", "x", "y", "width", "height", "transform", "clip-path", "scope", "colspan", "tabindex", "dir", "open",
}  # fmt: skip
KEPT = {"format", "kind", "status"}  # fields that the report looks at, tried by themselves below


def poisoned(value, payload, key=""):
    """The same study with the payload at the beginning of every text and every name."""
    if isinstance(value, dict):
        is_free = key in ("classes", "right", "leaks", "config", "study", "tokenizer", "pretrain", "finetune")
        return {payload + name if is_free else name: poisoned(part, payload, name) for name, part in value.items()}
    if isinstance(value, list):
        return [poisoned(part, payload, key) for part in value]
    return payload + value if isinstance(value, str) and key not in KEPT else value


def study():
    found = synthetic_study.study(
        budgets=(50, 200), seeds=2, extra=("frozen", "shuffled", "scratch-long"), failed=[("scratch", 50, 1)]
    )
    found["pretraining"][0] |= {"status": "failed", "error": "no"}
    found["differences"][0] |= {"value": -0.02, "low": -0.04}
    return found


def assert_harmless(html):
    page = Page(html)
    assert page.names() <= ALLOWED_TAGS
    assert page.unclosed == []
    for _, attributes in page.tags:
        assert set(attributes) <= ALLOWED_ATTRIBUTES, attributes
        assert (attributes.get("href") or "#").startswith("#") or attributes["href"] == "data:,"
        assert re.fullmatch(r"(--share:[\d.]+|[\w\s:;.,()#-]*)", attributes.get("style") or "")
        assert "url(" not in (attributes.get("style") or "")
    raw = {unicodedata.category(character) for character in html if character not in "\n\u00ad\u200c\u200d"}
    assert not raw & {"Cc", "Cf", "Cs"}
    return page


@pytest.fixture
def no_drawing(monkeypatch):
    """Charts are built but not drawn, which takes most of the time: the payloads go through the same page."""
    monkeypatch.setattr(figures, "inline_svg", lambda figure, name: Markup('<svg aria-hidden="true"></svg>'))


def assert_read_as_text(tmp_path, payload):
    found = poisoned(study(), payload)
    clock = poisoned(synthetic_study.timing(study()), payload)
    path = write_report(synthetic_study.write(tmp_path, found, clock))
    page = assert_harmless(path.read_text())
    if payload.isascii() and payload.isprintable():
        assert payload in page.text
        assert page.text.count(payload.split()[0]) > 50
    return page


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_in_every_field_is_text(tmp_path, payload):
    assert_read_as_text(tmp_path, payload)


@pytest.mark.parametrize("payload", [PAYLOADS[4], PAYLOADS[10], PAYLOADS[11] + PAYLOADS[12], PAYLOADS[13]])
def test_a_payload_in_the_charts_is_text(tmp_path, payload):
    page = assert_read_as_text(tmp_path, payload)
    assert len(page.all("text")) > 100


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_in_the_fields_that_the_report_looks_at_is_text(tmp_path, payload):
    found = study()
    for arm in found["arms"][2:4]:
        arm["kind"] = payload
    for trial in found["trials"][::2]:
        trial["status"] = payload
    for difference in found["differences"]:
        difference["reading"] = payload
    assert_harmless(write_report(synthetic_study.write(tmp_path, found)).read_text())


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", '=HYPERLINK("http://evil.example")'])
def test_no_cell_of_the_table_is_a_formula(tmp_path, start):
    path = write_report(synthetic_study.write(tmp_path, poisoned(study(), start)))
    rows = list(csv.reader(io.StringIO(path.with_name("results.csv").read_bytes().decode(), newline="")))
    numbers = 0
    for row in rows[1:]:
        for cell in row:
            if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
                float(cell)
                numbers += 1
    arms = {row[1] for row in rows[1:]}
    assert all(arm.startswith("'") for arm in arms)
    assert numbers > 0, "no negative number that stays one"


@pytest.mark.usefixtures("no_drawing")
def test_direction_marks_cannot_reorder_but_joiners_of_scripts_are_kept(tmp_path):
    found = study()
    found["items"][0]["text"] = "نامه\u200cهای \u202eabc 👩\u200d🚀"
    text = write_report(synthetic_study.write(tmp_path, found)).read_text()
    assert "نامه\u200cهای \\u202eabc 👩\u200d🚀" in text
