"""A browser for the tests that need one: the system's chromium, without a window and without the network."""

import json
import shutil

import page_driving
import pytest
import serving
import synthetic_study
import tiny_runs
import translators

from headstart.report.page import write_report

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--hide-scrollbars",
]


class Browser:
    """Opens a file or an address at a width and in a colour scheme, and tells what happened meanwhile."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path, width=1200, dark=False, media=""):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        if isinstance(path, str):
            self.driver.get("about:blank")  # a new hash alone would not load the page anew
        self.requests(), self.complaints()  # those of the page before are read, and so forgotten
        self.driver.get(path if isinstance(path, str) else path.as_uri())
        return self

    def requests(self):
        """The addresses that were asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def complaints(self):
        """What the console has said since the last call: errors, warnings, everything."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def ask(self, script, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def wait(self, script, seconds=20):
        """What a script gives, once that is something."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds, 0.01).until(lambda driver: self.ask(script), script)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def click(self, selector):
        self.find(selector).click()

    def write(self, selector, text):
        """Type a text into an emptied field."""
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def choose(self, selector, value):
        """Choose an option of a select."""
        from selenium.webdriver.support.ui import Select

        Select(self.find(selector)).select_by_value(value)

    def press(self, *keys):
        """Press keys, wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def hover(self, selector):
        """Move the pointer over an element, and press nothing."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).move_to_element(self.find(selector)).perform()

    def texts(self, selector):
        """The text of every element, hidden parts too."""
        return self.ask("[...document.querySelectorAll(arguments[0])].map(one => one.textContent)", selector)

    def texts_seen(self, selector):
        """The text of every element that can be seen."""
        found = "[...document.querySelectorAll(arguments[0])].filter(one => one.getClientRects().length)"
        return self.ask(f"{found}.map(one => one.innerText)", selector)


@pytest.fixture(scope="session")
def browser():
    """The browser, started once; without it these tests are skipped."""
    selenium = pytest.importorskip("selenium.webdriver")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    options = selenium.ChromeOptions()
    options.binary_location = programs[0]
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(programs[1]))
    yield Browser(driver)
    driver.quit()


SERVED = ("classification", "char", "multilabel", "regression", "pairs", "causal", "rotary")


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """A server for small runs of every kind, and a study."""
    study = tmp_path_factory.mktemp("studies") / "books"
    study.mkdir()
    write_report(synthetic_study.write(study, synthetic_study.study(budgets=(50,), seeds=2)))
    with serving.serving(*map(tiny_runs.path_of, SERVED), translators.path_of(), study) as found:
        yield found


@pytest.fixture
def page(browser, served, tmp_path):
    """The page of that server; the test is over when it was silent and stayed at home."""
    with page_driving.checked_page(browser, served.port, tmp_path) as found:
        yield found
