"""The page around its tabs: runs, tabs, address, keyboard, phone, night, tokens, errors."""

import page_driving
import pytest
import serving
import tiny_runs

from headstart.serve.security import Access

RIGHT, LEFT, HOME, END, TAB, ENTER = "\ue014", "\ue012", "\ue011", "\ue010", "\ue004", "\ue007"
TEXT = "une histoire vraiment belle."
VIEWS = {"classify": "classification", "complete": "causal", "translate": "translator-joint",
         "attention": "classification", "compare": "classification", "study": "classification"}  # fmt: skip

# Every text that can be seen with less contrast than 4.5 (3 for large letters) against what lies under it.
FAINT = """(() => {
  const numbers = colour => (colour.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const over = ([r, g, b, a = 1], under) => [r, g, b].map((one, at) => one * a + under[at] * (1 - a));
  const ground = element => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(numbers(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const light = colour => colour.map(one => one / 255)
    .map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const [found, seen] = [[], new Set()];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || seen.has(element) || !element.getClientRects().length) continue;
    seen.add(element);
    const style = getComputedStyle(element);
    const under = ground(element);
    const ink = over(numbers(element.closest('svg') ? style.fill : style.color), under);
    const [low, high] = [light(ink), light(under)].sort((one, other) => one - other);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.6 && style.fontWeight >= 600) ? 3 : 4.5;
    if ((high + 0.05) / (low + 0.05) < least) found.push([walk.currentNode.data, style.color, under.map(Math.round)]);
  }
  return found;
})()"""


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (1200, False),
        (390, True),
        *(pytest.param(*view, marks=pytest.mark.slow) for view in [(1200, True), (390, False)]),
    ],
)
def test_every_tab_can_be_read_on_desk_and_phone_by_day_and_night(page, tmp_path, width, dark):
    browser = page.open(width=width, dark=dark)
    for tab, run in VIEWS.items():
        browser.choose("#run", run)
        browser.click(f"#tab-{tab}")
        if tab == "study":
            browser.wait("!document.getElementById('study-report').hidden")
        else:
            page.submit(tab, TEXT)
            browser.ask(f"document.querySelector('#{tab} .tokens .token:nth-of-type(2)').click()")
        assert browser.ask(FAINT) == []
        assert browser.ask("document.documentElement.scrollWidth") == width
        assert browser.driver.save_screenshot(str(tmp_path / f"{tab}.png"))


def test_tabs_are_what_the_run_can_do(page):
    browser = page.open()
    tabs = {}
    for option in browser.texts("#run option"):
        name = option.split(":")[0]
        browser.choose("#run", name)
        tabs[name] = browser.texts_seen("[role=tab]")
    assert tabs["classification"] == ["Classify", "Attention", "Compare", "Study"]
    assert tabs["causal"] == ["Complete", "Attention", "Compare", "Study"]
    assert tabs["pairs"] == ["Classify", "Attention", "Study"]
    assert tabs["translator-joint"] == ["Translate", "Attention", "Study"]


def test_the_chosen_run_says_what_it_is(page):
    browser = page.open("classify", "classification")
    facts = dict(zip(browser.texts("#about dt"), browser.texts("#about dd"), strict=True))
    parameters = sum(tensor.numel() for tensor in tiny_runs.run_of("classification").model.parameters())
    assert facts["Objective"] == "classification"
    assert facts["Labels"] == "non, oui"
    assert facts["Parameters"] == f"{parameters:,}"
    assert facts["Start"] == "the run causal"
    assert facts["Reads"] == "16 tokens"
    page.open("classify", "char")
    assert "scratch" in browser.texts("#about dd")


def test_tabs_are_moved_through_with_arrows(page):
    browser = page.open("classify", "classification")
    browser.ask("document.getElementById('tab-classify').focus()")
    seen = []
    for key in (RIGHT, RIGHT, RIGHT, RIGHT, LEFT, HOME, END):
        browser.press(key)
        seen.append(browser.ask("document.activeElement.dataset.tab"))
        chosen = browser.ask("[...document.querySelectorAll('[role=tab][aria-selected=true]')].map(t => t.dataset.tab)")
        assert chosen == [seen[-1]]
        assert (
            browser.ask("[...document.querySelectorAll('[role=tabpanel]')].filter(p => !p.hidden).map(p => p.id)")
            == chosen
        )
    assert seen == ["attention", "compare", "study", "classify", "study", "classify", "study"]


def test_a_text_is_classified_with_the_keyboard_alone(page):
    browser = page.open("classify", "classification")
    browser.ask("document.getElementById('tab-classify').focus()")
    browser.press(TAB, TEXT, TAB, ENTER)
    assert page.answered("classify") != ""
    outline = browser.ask(
        "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"
    )
    assert outline == "solid2px"


def test_nothing_is_lost_between_tabs_and_runs(page):
    browser = page.open("classify", "classification")
    said = page.submit("classify", TEXT)
    shown = browser.texts("#classify .result")
    browser.click("#tab-attention")
    assert not browser.find("#classify").is_displayed()
    browser.click("#tab-classify")
    assert browser.texts("#classify .result") == shown
    browser.choose("#run", "char")
    assert browser.texts("#classify .result") == [""]
    assert browser.ask("document.querySelector('#classify-text').value") == TEXT
    browser.choose("#run", "classification")
    assert browser.texts("#classify .result") == shown
    assert browser.find("#classify [role=status]").text == said


def test_the_address_keeps_tab_and_run(page):
    browser = page.open("attention", "char")
    assert browser.ask("document.getElementById('run').value") == "char"
    assert browser.texts_seen("[role=tab][aria-selected=true]") == ["Attention"]
    browser.choose("#run", "causal")
    browser.click("#tab-complete")
    assert browser.ask("location.hash") == "#tab=complete&run=causal"
    browser.driver.refresh()
    browser.wait("document.documentElement.dataset.ready")
    assert browser.texts_seen("[role=tab][aria-selected=true]") == ["Complete"]
    browser.ask("(location.hash = '#tab=classify&run=no%20such%20run', 1)")
    browser.wait("document.getElementById('run').value === 'classification'")


def test_an_example_is_one_click(page):
    browser = page.open("classify", "classification")
    browser.click("#classify .example")
    assert page.answered("classify") != ""
    assert browser.texts("#classify .tokens .token") != []
    browser.click("#classify .onward button")
    page.answered("attention")
    assert browser.ask("document.activeElement.id") == "tab-attention"
    assert browser.ask("document.getElementById('attention-text').value") == browser.texts("#classify .example")[0]


def test_every_field_has_a_name_and_every_answer_a_place_that_is_spoken(page):
    browser = page.open()
    unnamed = """[...document.querySelectorAll('input, select, textarea, iframe')]
      .filter(one => !one.labels?.length && !one.title).map(one => one.outerHTML)"""
    assert browser.ask(unnamed) == []
    panels = "[...document.querySelectorAll('[role=tabpanel]')]"
    assert browser.ask(f"{panels}.every(p => p.querySelector('[role=status]') && p.querySelector('[role=alert]'))")
    assert browser.ask(f"{panels}.every(p => document.getElementById(p.getAttribute('aria-labelledby')))")


def test_what_the_server_refuses_is_told_with_its_fix(page, served, monkeypatch):
    page.is_refused_on_purpose = True
    browser = page.open("classify", "classification")
    browser.ask("document.getElementById('classify-text').removeAttribute('maxlength')")
    browser.ask("(document.getElementById('classify-text').value = 'x'.repeat(20001), 1)")
    browser.click("#classify .go")
    page.answered("classify")
    what, fix = browser.texts("#classify .problem p")
    assert (what, fix) == ("Text is longer than 20,000 characters", "Give a shorter one")
    page.submit("classify", TEXT)
    assert browser.texts("#classify .problem p") == []


def test_a_token_is_asked_for_and_kept(browser, tmp_path):
    with serving.serving(tiny_runs.path_of("classification"), access=Access(token="open sesame")) as served:
        page = page_driving.Page(browser, f"http://127.0.0.1:{served.port}/")
        browser.open(page.address)
        browser.wait("document.getElementById('token').open")
        assert browser.ask("document.activeElement.id") == "token-text"
        browser.press("\ue00c")  # Escape
        browser.wait("document.getElementById('notice').textContent.includes('No token was given')")
        browser.driver.refresh()
        browser.wait("document.getElementById('token').open")
        browser.press("wrong", ENTER)
        browser.wait("document.getElementById('token-title').textContent.includes('Wrong token')")
        browser.press("open sesame", ENTER)
        browser.wait("document.documentElement.dataset.ready")
        assert page.submit("classify", TEXT) != ""
        browser.driver.refresh()
        browser.wait("document.documentElement.dataset.ready")
        page.is_refused_on_purpose = True
        page.check(tmp_path / "page.png")


def test_a_study_alone_has_its_tab(browser, served, tmp_path):
    (study,) = served.models.studies.values()
    with (
        serving.serving(study) as alone,
        page_driving.checked_page(browser, alone.port, tmp_path) as page,
    ):
        page.open()
        assert browser.texts_seen("[role=tab]") == ["Study"]
        assert not browser.find("#chooser").is_displayed()
        browser.wait("!document.getElementById('study-report').hidden")


def test_a_server_that_has_gone_is_told(browser, tmp_path):
    with serving.serving(tiny_runs.path_of("classification")) as served:
        page = page_driving.Page(browser, f"http://127.0.0.1:{served.port}/")
        page.open("classify", "classification")
        assert any(fact.startswith("another run (") for fact in browser.texts("#about dd"))
    page.submit("classify", TEXT)
    what, fix = browser.texts("#classify .problem p")
    assert what == "The server does not answer."
    assert "headstart serve" in fix
