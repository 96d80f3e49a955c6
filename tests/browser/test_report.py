"""The report in a browser: from a file, on a desk and on a phone, by day and by night, on paper, with hostile text."""

import base64

import pytest
import synthetic_study

from headstart.report.page import write_report

PAYLOAD = (
    "<script>window.ran = 1; alert(1)</script><img src=x onerror='window.ran = 1; alert(1)'>"
    '"\'></style></title><svg onload="alert(1)"><iframe src="http://evil.example/">\u202e'
)
VIEWS = [
    (1200, False),
    (390, True),
    *(pytest.param(*view, marks=pytest.mark.slow) for view in [(1200, True), (390, False)]),
]

OVERLAPS = """(() => {
  const found = [];
  for (const svg of document.querySelectorAll('[role=img] svg')) {
    if (!svg.getClientRects().length || !svg.getBoundingClientRect().width) continue;
    const boxes = [...svg.querySelectorAll('text')].map(node => [node.textContent, node.getBoundingClientRect()]);
    boxes.forEach(([text, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 4) found.push(text + ' | ' + other);
    }));
  }
  return found;
})()"""

OUTSIDE = """(() => {
  const found = [];
  for (const svg of document.querySelectorAll('[role=img] svg')) {
    const frame = svg.getBoundingClientRect();
    for (const node of svg.querySelectorAll('text')) {
      const box = node.getBoundingClientRect();
      if (frame.width && (box.left < frame.left - 1 || box.right > frame.right + 1)) found.push(node.textContent);
    }
  }
  return found;
})()"""

SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('[role=img] svg')]
  .filter(svg => svg.getBoundingClientRect().width)
  .flatMap(svg => [...svg.querySelectorAll('text')].map(node =>
    parseFloat(getComputedStyle(node).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)))"""


@pytest.fixture(scope="module")
def large_report(tmp_path_factory):
    """The report of a study with many arms and budgets, and a failed trial."""
    found = synthetic_study.study(
        budgets=(50, 100, 200, 400, 800, 1600), seeds=3, objectives=("causal", "masked", "masked-nsp"),
        extra=("frozen", "shuffled", "scratch-long"), failed=[("scratch", 50, 1)], labels=["neg", "pos", "neutral"],
    )  # fmt: skip
    directory = synthetic_study.write(tmp_path_factory.mktemp("many"), found, synthetic_study.timing(found))
    return write_report(directory)


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory):
    """The report of a study with the payload in every text."""
    found = _poisoned(synthetic_study.study(budgets=(50, 200), seeds=2))
    return write_report(synthetic_study.write(tmp_path_factory.mktemp("hostile"), found))


def _poisoned(value, key=""):
    if isinstance(value, dict):
        return {name: _poisoned(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_poisoned(part, key) for part in value]
    return value[:1] + PAYLOAD + value if isinstance(value, str) and key not in ("kind", "status") else value


@pytest.mark.parametrize(("width", "dark"), VIEWS)
@pytest.mark.parametrize("which", ["large_report", "hostile_report"])
def test_the_page_opens_in_silence_and_asks_for_nothing(browser, request, tmp_path, which, width, dark):
    path = request.getfixturevalue(which)
    browser.open(path, width, dark)
    assert browser.requests() == [path.as_uri()]
    assert browser.complaints() == []
    assert browser.ask("window.ran") is None
    assert browser.ask("document.scripts.length + document.images.length + window.frames.length") == 0
    assert browser.ask("document.documentElement.scrollWidth") == width
    browser.ask("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert browser.ask("document.documentElement.scrollWidth") == width
    assert browser.driver.save_screenshot(str(tmp_path / "page.png"))


@pytest.mark.parametrize("width", [1200, 390])
def test_labels_of_charts_can_be_read_and_do_not_overlap(browser, large_report, width):
    browser.open(large_report, width)
    browser.ask("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert browser.ask(SMALLEST_TEXT) > 9.5
    assert browser.ask(OUTSIDE) == []
    assert browser.ask(OVERLAPS) == []


def test_the_night_is_dark_and_paper_is_white(browser, large_report):
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('text')).fill]"
    day = browser.open(large_report).ask(colours)
    night = browser.open(large_report, dark=True).ask(colours)
    paper = browser.open(large_report, dark=True, media="print").ask(colours)
    assert day == paper
    assert _lightness(day[0]) > 240 > 80 > _lightness(day[1])
    assert _lightness(night[0]) < 40 < 200 < _lightness(night[1])


def _lightness(colour):
    return sum(int(part) for part in colour[4:-1].split(",")) / 3


def test_it_prints_with_everything_that_is_folded(browser, large_report):
    browser.open(large_report)
    answer = browser.driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    assert base64.b64decode(answer["data"])[:5] == b"%PDF-"
    browser.open(large_report, media="print")
    heights = browser.ask("[...document.querySelectorAll('details table')].map(table => table.offsetHeight)")
    assert len(heights) >= 3
    assert min(heights) > 50
    assert browser.ask("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_sections_are_reached_by_the_keyboard(browser, large_report):
    browser.open(large_report)
    browser.driver.find_element("css selector", "nav a[href='#costs']").click()
    assert browser.ask("location.hash") == "#costs"
    assert browser.requests()[1:] == []
    boxes = "[...document.querySelectorAll('.scroll')].every(box => box.tabIndex === 0 && box.ariaLabel)"
    assert browser.ask(boxes) is True
