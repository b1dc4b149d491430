"""The pictures of docs/guides/demo.md: a limit, a hot key, and an outage of Redis. The test applies the load."""

import time

# Samples of the charts that a picture needs, and a bound for them: a sample takes five seconds.
SAMPLES = 6
MAX_WAIT_S = 180.0


def collected(instance, what, condition):
    """Waits until a sample of the last minutes, or the number of them, is as required."""
    deadline = time.monotonic() + MAX_WAIT_S
    while not condition(instance.get("history")["samples"]):
        assert time.monotonic() < deadline, f"after {MAX_WAIT_S} s there is still not: {what}"
        time.sleep(0.2)


def picture(browser, name, size, view, words):
    """Keeps a part of a view, of this width and height, once it shows these words, and rates."""
    width, height = size
    browser.size(width, 800)
    browser.open(view)
    if name != "demo-outage":
        browser.sees("healthy", "#facts")
    for word in words:
        browser.sees(word, "main")
    rows = lambda: [row.text.split() for row in browser.all("main tbody tr")]
    browser.until("rates of all rows", lambda: all("…" not in words for words in rows()))
    browser.picture(name, height=height)


def demo_limit(browser, instance):
    """The rule that admits ten requests an hour has denied the others."""
    assert instance.send("edge", [("path", "/login")], 12) == 2, "ten of twelve pass"
    picture(browser, "demo-limit", (1380, 420), "rules", ["path_/login*", "10 per hour"])


def demo_hot_key(browser, instance):
    """One client has the most hits, of which nearly all are denied."""
    collected(instance, "some samples with denials", lambda samples: sum(one["over_limit"] > 0 for one in samples) >= SAMPLES)
    picture(browser, "demo-hot-key", (1180, 480), "talkers", ["client=hot", "client=1"])


def demo_outage(browser, instance):
    """Redis does not respond: instances decide by their share of the limit."""
    collected(instance, "some degraded samples", lambda samples: sum(one["degraded"] > 0 for one in samples) >= SAMPLES // 2)
    picture(browser, "demo-outage", (1180, 350), "overview", ["The store is unavailable", "decided without the store"])
    # Pages that need the store are answered with 503, which the console has.
    browser.driver.get_log("browser")
