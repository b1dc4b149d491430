"""Several instances: sums, those that are missing, and events."""


def fleet(browser, instance):
    """The sums of three instances are shown, with a fourth one that is missing; so is an event that another raised."""
    browser.open("talkers")
    browser.sees("Sum of 3 instances", "main")
    row = browser.row("api_key=shared")
    browser.until("the sum of 3, 5 and 7", lambda: "15" in browser.row("api_key=shared").text)
    browser.sees("1 of 4 instances are missing in the sum", "main .notice")
    missing = [one["id"] for one in instance.get("top")["instances"] if one["status"] == "missing"]
    assert len(missing) == 1, missing
    browser.sees(missing[0], "main .notice")
    browser.picture("fleet-talkers")
    assert row.is_displayed()
    browser.open("overview", fresh=False)
    browser.sees("Sum of 3 instances", "main")
    browser.sees("1 of 4 instances are missing in the sum", "main .notice")
    browser.row("api_key=<b>loud</b>")
    browser.picture("fleet-overview")
    browser.open("events", fresh=False)
    row = browser.row("A test of events.")
    assert all(words in row.text for words in ["ramp rolled back", "api_key=<b>loud</b>"]), row.text
    browser.press("Show older events")
    browser.until("there are none", lambda: not browser.all("main button", "Show older events"))
    browser.picture("events")
