"""The file that `explain attention` writes, in a browser: pointing at a token shows where it looks."""

import json

import pytest
import tiny_runs
import translators
from selenium.webdriver.common.action_chains import ActionChains

from headstart.inference.attention_maps import attention_of
from headstart.report.attention import attention_page

PAYLOAD = "<script>window.ran=1</script><img src=x onerror='window.ran=1'>"


def written(run, text, tmp_path, **options):
    found = attention_of(run, text, tiny_runs.MACHINE, **options)
    path = tmp_path / "attention.html"
    path.write_text(attention_page(found, f"Where {text} looks", "facts"), encoding="utf-8")
    return path, found


def assert_silent(browser):
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_a_token_that_is_pointed_at_shows_where_it_looks(browser, tmp_path, width, dark):
    path, found = written(tiny_runs.run_of("causal"), "une belle fin", tmp_path)
    browser.open(path, width, dark)
    browser.find("button[aria-label='layer 2, head 1']").click()
    chips = browser.driver.find_elements("css selector", ".tokens button")
    ActionChains(browser.driver, duration=0).move_to_element(chips[3]).perform()
    weights = found.maps[0].weights[1, 0, 3]
    titles = [chip.get_attribute("title") for chip in chips]
    assert titles[:4] == [f"{100 * round(float(weight), 4):.1f} %" for weight in weights[:4]]
    assert set(titles[4:]) == {"may not be looked at"}
    assert "looks at" in browser.texts(".said")[0]
    assert browser.texts(".map caption") == ["Layer 2, head 1"]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert_silent(browser)


def test_a_row_of_the_map_and_the_keyboard_do_the_same(browser, tmp_path):
    path, _ = written(translators.run_of(), "un livre", tmp_path, target="livre un")
    browser.open(path)
    cross = "section:nth-of-type(3) "
    browser.driver.execute_script(
        "arguments[0].focus()", browser.driver.find_elements("css selector", cross + ".tokens button")[1]
    )
    assert browser.ask("document.querySelectorAll(arguments[0]).length", cross + ".map tr.looking") == 1
    by_keyboard = browser.texts(cross + ".said")[0]
    row = browser.driver.find_elements("css selector", cross + ".map tbody tr")[1]
    ActionChains(browser.driver, duration=0).move_to_element(row).perform()
    assert browser.texts(cross + ".said")[0] == by_keyboard
    assert_silent(browser)


def test_hostile_text_does_not_run(browser, tmp_path):
    run = tiny_runs.run_of("masked-nsp")  # the longest that is read
    path, _ = written(run, PAYLOAD, tmp_path)
    browser.open(path)
    browser.find(".tokens button").click()
    assert browser.ask("window.ran") is None
    assert browser.ask("document.querySelectorAll('img, body script').length") == 2
    assert json.dumps(browser.texts("h1")) == json.dumps([f"Where {PAYLOAD} looks"])
    assert_silent(browser)
