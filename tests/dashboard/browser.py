"""Chromium, driven like a user: interactions are counted, waits have a deadline, and requests and console messages of the
page are checked."""

import base64
import json
import os
import pathlib
import re
import tempfile
import time

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --lang=en"""

# A machine that tests many things at once is slow.
TIMEOUT_S = 20.0

# What is shown, in the page's own words.
SHOWN = """
const [scope, css, words] = arguments;
return [...(scope ?? document).querySelectorAll(css)].filter((node) =>
    node.checkVisibility({visibilityProperty: true}) && node.getClientRects().length > 0 && node.innerText.includes(words));
"""
CALLED = """
const [scope, css, name] = arguments;
const tidy = (text) => (text ?? '').replace(/\\s+/g, ' ').trim();
return [...scope.querySelectorAll(css)].filter((node) => node.checkVisibility({visibilityProperty: true})
    && [node.getAttribute('aria-label'), node.textContent, ...[...(node.labels ?? [])].map((label) => label.textContent)]
        .some((text) => tidy(text).startsWith(name)));
"""


class Browser:
    """One Chromium, and the page in it."""

    def __init__(self, url, pictures):
        self.url = url
        self.pictures = pathlib.Path(pictures)
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.interactions = 0
        # Seconds between two interactions, to simulate a user who looks before acting.
        self.pause = 0.0
        self.profile = tempfile.TemporaryDirectory(prefix="tollgate-chromium-", ignore_cleanup_errors=True)
        options = Options()
        for flag in FLAGS.split():
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={self.profile.name}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        driver = os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        # What a browser shows of its own is not looked at.
        self.driver.get("about:blank")
        self.driver.get_log("performance")
        self.size(1280, 800)

    def close(self):
        self.driver.quit()
        self.profile.cleanup()

    def size(self, width, height, theme="light", motion="no-preference"):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": theme}, {"name": "prefers-reduced-motion", "value": motion}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    # What the page is.

    def open(self, view="", fresh=True):
        """Opens a view; with nothing kept from before if `fresh`."""
        if fresh and self.driver.current_url.startswith(self.url):
            self.driver.execute_script("sessionStorage.clear(); localStorage.clear()")
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/{f'#/{view}' if view else ''}")

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def until(self, what, condition):
        """Waits until a condition gives something, and gives that."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                found = condition()
                if found:
                    return found
            except (NoSuchElementException, StaleElementReferenceException):
                pass
            if time.monotonic() > deadline:
                self.picture("failed")
                raise AssertionError(f"after {TIMEOUT_S} s there is still not: {what}")
            time.sleep(0.03)

    def all(self, css, words="", within=None):
        """The visible elements with this text. One script call, as each round trip takes a while."""
        return self.script(SHOWN, within, css, words)

    def candidates(self, css, name, within=None):
        """Elements that may have that name, in the open dialog or the page; the browser's accessible name decides next."""
        return self.script(CALLED, within or self.top(), css, name)

    def text(self, css="body"):
        return self.driver.find_element(By.CSS_SELECTOR, css).text

    def sees(self, words, css="body"):
        """Waits until these words can be read, and gives where."""
        return self.until(f"“{words}” in {css}", lambda: next(iter(self.all(css, words)), None))

    def does_not_see(self, words, css="body"):
        return self.until(f"no “{words}” in {css}", lambda: not self.all(css, words))

    def named(self, name, css="button, a, summary", within=None):
        """The one that can be pressed and has that name, or begins with it."""

        def look():
            names = [(re.sub(r"\s+", " ", node.accessible_name), node) for node in self.candidates(css, name, within)]
            exact = [node for found, node in names if found == name]
            return next(iter(exact + [node for found, node in names if found.startswith(name)]), None)

        return self.until(f"something to press that is called “{name}”", look)

    def field(self, label):
        """The field with that label."""
        fields = "input, select, textarea"
        found = lambda: next((node for node in self.candidates(fields, label) if node.accessible_name == label), None)
        return self.until(f"a field that is called “{label}”", found)

    def top(self):
        """The dialog that is open, or the page."""
        dialogs = self.driver.find_elements(By.CSS_SELECTOR, "dialog[open]")
        return dialogs[-1] if dialogs else self.driver.find_element(By.TAG_NAME, "body")

    def row(self, words):
        """The row of a table in which these words are."""
        return self.until(f"a row with “{words}”", lambda: next(iter(self.all("tbody tr", words)), None))

    def focused(self):
        return self.driver.switch_to.active_element

    # Interactions.

    def did(self):
        self.interactions += 1
        time.sleep(self.pause)

    def press(self, name, within=None):
        def click():
            try:
                self.named(name, within=within).click()
                return True
            except StaleElementReferenceException:
                return False

        self.until(f"“{name}” can be pressed", click)
        self.did()

    def type(self, words, into=None):
        """Types, where the focus is or into a field."""
        (into or self.focused()).send_keys(words)
        self.did()

    def fill(self, label, words):
        field = self.field(label)
        field.clear()
        self.type(words, field)

    def choose(self, label, option):
        field = self.field(label)
        self.until(f"“{option}” among “{label}”", lambda: next(
            (node for node in field.find_elements(By.TAG_NAME, "option") if node.text == option), None)).click()
        self.did()

    def key(self, *keys):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()
        self.interactions += 1
        time.sleep(self.pause / 10)

    def tab_to(self, name, backwards=False):
        """Presses Tab until something of that name has the focus."""
        for _ in range(80):
            if self.focused().accessible_name.startswith(name):
                return self.focused()
            if backwards:
                webdriver.ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
                self.interactions += 1
            else:
                self.key(Keys.TAB)
        raise AssertionError(f"Tab never comes to “{name}”")

    # What is looked at afterwards.

    def picture(self, name, height=None):
        """Keeps what is to be seen, to this height or to the end of the page."""
        whole, width = self.script("return [Math.max(document.body.scrollHeight, innerHeight), innerWidth]")
        height = height or whole
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 4000), "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": height > 1200, "clip": clip})
        (self.pictures / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def complaints(self):
        """Console messages, except those that the browser logs for each 4xx response."""
        lines = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        expected = re.compile(r"/api/v1/\S+ - Failed to load resource: the server responded with a status of 4\d\d ")
        return [line for line in lines if not expected.search(line)]

    def foreign_requests(self):
        """URLs fetched from other hosts than the instance."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        assert sent, "nothing was fetched at all"
        return [url for url in sent if not url.startswith((f"{self.url}/", "about:", "data:"))]


def hold(browser, method, path):
    """Holds back the page's calls of that path: `held` has them, with what was sent, until each goes, or is late.
    What is held back by an earlier call of this is out of sight then."""
    browser.script("""
        const [method, path] = arguments;
        const send = window.fetch;
        const list = window.held = [];
        window.fetch = (url, options) => {
            if (options.method !== method || url.split('?')[0] !== path) return send(url, options);
            return new Promise((answer, fail) => list.push({
                body: JSON.parse(options.body ?? 'null'),
                go: () => answer(send(url, {...options, signal: undefined})),
                late: () => fail(new DOMException('late', 'TimeoutError')),
            }));
        };
    """, method, path)
