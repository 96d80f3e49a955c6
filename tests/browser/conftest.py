"""A browser for the tests that need one: the system's chromium, without a window and without the network."""

import json
import shutil

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--hide-scrollbars",
]


class Browser:
    """Opens a file at a width and in a colour scheme, and tells what happened meanwhile."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path, width=1200, dark=False, media=""):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.requests(), self.complaints()  # those of the page before are read, and so forgotten
        self.driver.get(path.as_uri())
        return self

    def requests(self):
        """The addresses that were asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self):
        """What the console has said since the last call: errors, warnings, everything."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def ask(self, script):
        return self.driver.execute_script(f"return {script}")


@pytest.fixture(scope="session")
def browser():
    """The browser, started once; without it these tests are skipped."""
    selenium = pytest.importorskip("selenium.webdriver")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip(
            "chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)"
        )
    options = selenium.ChromeOptions()
    options.binary_location = programs[0]
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(programs[1]))
    yield Browser(driver)
    driver.quit()
