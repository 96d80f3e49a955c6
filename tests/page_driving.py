"""The web page in a browser: open it, ask it, and see that it was silent and stayed at home."""

import contextlib


class Page:
    """The page of a server, in the browser."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address
        self.is_refused_on_purpose = False
        """Whether the test provokes an answer that the console complains of."""

    def open(self, tab="", run="", **view):
        """The page, once it knows its runs."""
        self.browser.open(f"{self.address}#tab={tab}&run={run}", **view)
        self.browser.wait("document.documentElement.dataset.ready")
        return self.browser

    def submit(self, tab, text, second=None):
        """Ask a tab about a text and wait for the answer; gives what it says about it."""
        self.browser.write(f"#{tab} textarea", text)
        if second is not None:
            self.browser.write(f"#{tab} .second textarea", second)
        self.browser.click(f"#{tab} .go")
        return self.answered(tab)

    def answered(self, tab):
        """What a tab says, once it has its answer."""
        self.browser.wait(f"document.getElementById('{tab}').getAttribute('aria-busy') === 'false'")
        return self.browser.find(f"#{tab} [role=status]").text

    def check(self, screenshot):
        """Nothing was said in the console, nobody else was asked for anything, and there is something to see."""
        complaints = self.browser.complaints()
        assert self.is_refused_on_purpose or complaints == []
        addresses = [address for address in self.browser.requests() if address != "about:blank"]
        assert [address for address in addresses if not address.startswith(self.address)] == []
        assert self.browser.driver.save_screenshot(str(screenshot))


@contextlib.contextmanager
def checked_page(browser, port, tmp_path):
    found = Page(browser, f"http://127.0.0.1:{port}/")
    yield found
    found.check(tmp_path / "page.png")
