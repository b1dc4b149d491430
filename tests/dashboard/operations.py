"""Operations during an incident: find a talker, deny it, switch a rule, dry-run a request."""

import itertools
import time

from browser import hold

HOSTILE = "<img src=x onerror=document.title='hacked'>"


def talkers(browser, instance):
    """A key with too many requests is denied from where it is seen; its name is text, whatever it reads like."""
    denied = lambda times=1: instance.send("api", [("api_key", HOSTILE)], times)
    assert denied(30) == 0, "its limit is much higher"
    browser.open("talkers")
    row = browser.row(HOSTILE)
    assert not browser.all("main img"), "a key has become an element"
    browser.picture("talkers")
    browser.press("Deny…", within=row)
    browser.sees("Deny a key", "dialog")
    assert browser.field("Value or pattern").get_attribute("value") == HOSTILE
    assert "Top talker" in browser.field("Reason").get_attribute("value")
    browser.choose("For", "15 minutes")
    browser.choose("List", "Allow")
    browser.sees("Allow a key", "dialog")
    browser.named("Allow", "dialog button")
    browser.choose("List", "Deny")
    browser.sees("Deny a key", "dialog")
    browser.picture("deny")
    browser.press("Deny")
    browser.sees("100 % of the requests", "dialog")
    assert denied() == 0, "nothing is changed before it is confirmed"
    browser.fill("To apply anyway, type the name of the domain: api", "api")
    browser.press("Deny")
    browser.sees("is on the deny list of api", "#messages")
    browser.until("its requests are denied", lambda: denied() == 1)
    browser.open("records", fresh=False)
    row = browser.row(HOSTILE)
    assert "deny" in row.text and "in 14 min" in row.text, row.text
    browser.open("audit", fresh=False)
    browser.row(HOSTILE)
    browser.open("records", fresh=False)
    browser.press("Remove…", within=browser.row(HOSTILE))
    browser.press("Remove")
    browser.sees("No runtime changes")
    browser.until("its requests pass", lambda: denied() == 0)
    assert "hacked" not in browser.driver.title


def hostile(browser, instance):
    """A deny entry of a top talker denies its value and nothing else, whatever the value is."""
    passes = lambda value: instance.send("api", [("api_key", value)]) == 0
    assert instance.send("api", [("api_key", "honest")], hits=3000) == 0
    values = ["*", "a,b=c", "back\\slash\\", "line\nbreak ", '"quoted"', "10.0.0.0/8", "ü"]
    for value in values:
        assert instance.send("api", [("api_key", value)], hits=30) == 0
    for value in values:
        browser.open("talkers")
        browser.press("Deny…", within=browser.row(f"api_key={value.split(chr(10))[0]}"))
        browser.sees("Deny a key", "dialog")
        assert browser.field("Match").get_attribute("value") == "exact"
        browser.press("Deny")
        browser.sees("is on the deny list of api", "#messages")
        browser.until(f"{value!r} is denied", lambda value=value: not passes(value))
        others = [other for other in values + ["honest", "a", "line", "10.1.2.3"] if other != value]
        assert all(passes(other) for other in others), value
        added = instance.get("records")["records"]
        assert [entry["descriptor"] for entry in added] == [[{"key": "api_key", "value": value, "match": "exact"}]], added
        for entry in added:
            instance.call("DELETE", f"records/{entry['key']}")
        browser.until(f"{value!r} passes", lambda value=value: passes(value))
    assert passes("x" * 300)
    browser.open("talkers")
    browser.press("Deny…", within=browser.row("x" * 100))
    browser.sees("known only in part", "#messages")
    assert not browser.all("dialog[open]") and instance.get("records")["records"] == []


def broad(browser, instance):
    """An entry that denies everybody is confirmed for itself only."""
    browser.open("records")
    browser.press("Deny or allow…")
    browser.fill("Domain", "api")
    browser.fill("Key", "api_key")
    browser.fill("Value or pattern", "*")
    browser.fill("Reason", "By mistake")
    browser.press("Deny")
    browser.sees("would deny all requests with its keys", "dialog")
    browser.picture("broad")
    browser.fill("To apply anyway, type the name of the domain: api", "ap")
    browser.press("Deny")
    browser.sees("Confirm above", "dialog")
    browser.fill("To apply anyway, type the name of the domain: api", "api")
    browser.fill("Domain", "*")
    browser.press("Deny")
    browser.sees("type the name of the domain: *", "dialog")
    assert instance.get("records")["records"] == [], "what was confirmed is another entry"
    browser.fill("Value or pattern", "zzz*")
    browser.press("Deny")
    browser.press("Remove…", within=browser.row("api_key=zzz*"))
    browser.press("Remove")
    browser.sees("No runtime changes")


def entry(browser, instance):
    """An entry that is written by hand, with a pattern."""
    browser.open("records")
    browser.press("Deny or allow…")
    browser.choose("List", "Allow")
    browser.fill("Domain", "*")
    browser.fill("Key", "remote_address")
    browser.fill("Value or pattern", "10.66.0.0/16")
    browser.fill("Reason", "Health checks")
    browser.choose("For", "Until removed")
    browser.press("Allow")
    row = browser.row("10.66.0.0/16")
    assert "every domain" in row.text and "never" in row.text and "allow" in row.text, row.text
    browser.press("Remove…", within=row)
    browser.press("Remove")
    browser.sees("No runtime changes")


def switch(browser, instance):
    """A rule that hurts is made to watch only, and to limit again."""
    browser.open("rules?filter=plan_bronze")
    browser.press("Switch…", within=browser.row("plan_bronze"))
    browser.top().find_element("css selector", "input[value=shadow]").click()
    browser.fill("Reason", "It denies too much")
    browser.picture("switch")
    browser.press("Switch")
    browser.until("the badge", lambda: "switched shadow" in browser.row("plan_bronze").text)
    assert instance.rule("api", "plan_bronze")["switch"] == "shadow"
    browser.press("Switch…", within=browser.row("plan_bronze"))
    browser.sees("It denies too much", "dialog")
    browser.top().find_element("css selector", "input[value=normal]").click()
    browser.press("Switch")
    browser.until("the badge", lambda: "enforced" in browser.row("plan_bronze").text)
    switches = lambda: instance.get("records?kind=switch")["records"]
    browser.press("Switch…", within=browser.row("plan_bronze"))
    browser.top().find_element("css selector", "input[value=ramp]").click()
    browser.fill("Steps", "20, 100")
    browser.fill("Reason", "A new limit")
    browser.press("Switch")
    browser.until("the ramp", lambda: [one for one in switches() if one["ramp"]["steps"] == [20, 100]])
    browser.press("Switch…", within=browser.row("plan_bronze"))
    browser.sees("enforced for 20% of keys; ramp running, step 1 of 2", "dialog")
    # Another ramp in its place goes back to the share before both.
    browser.fill("Steps", "30, 100")
    browser.press("Switch")
    backs = lambda: [one["ramp"]["back_to_percent"] for one in switches() if one["ramp"]["steps"] == [30, 100]]
    browser.until("the other ramp", lambda: backs() == [0])
    browser.press("Switch…", within=browser.row("plan_bronze"))
    browser.sees("enforced for 30% of keys; ramp running, step 1 of 2", "dialog")
    browser.top().find_element("css selector", "input[value=normal]").click()
    browser.press("Switch")
    browser.until("no switch", lambda: not switches())


def bans(browser, instance):
    """A client that does not wait is banned; its ban is lifted, and the next one forgiven."""
    send = lambda times: instance.send("patience", [("client", HOSTILE)], times)
    banned = lambda: send(5) and instance.get("bans")["bans"]
    browser.until("a ban", banned)
    browser.open("bans")
    row = browser.row(HOSTILE)
    assert not browser.all("main img"), "a key has become an element"
    assert "enforce" in row.text and "in 59 min" in row.text and "rule client of patience" in row.text, row.text
    browser.picture("bans")
    browser.press("Lift…", within=row)
    browser.sees("this one had level 1", "dialog")
    browser.press("Lift")
    browser.sees("No active bans")
    browser.until("its requests pass", lambda: send(1) == 0)
    browser.until("another ban", banned)
    browser.open("bans")
    browser.press("Forgive…", within=browser.row(HOSTILE))
    browser.sees("has the first duration again", "dialog")
    browser.press("Forgive")
    browser.sees("No active bans")
    browser.open("audit", fresh=False)
    browser.sees("forgave a client", "main")
    browser.sees("lifted a ban", "main")
    assert "hacked" not in browser.driver.title


def abuse(browser, instance):
    """A client that is banned is listed; its entry is lifted with one click, and it is exempt."""
    listed = lambda: instance.send("abused", [("client", HOSTILE)], 9) and instance.get("records")["records"]
    browser.until("an automatic entry", listed)
    browser.open("records")
    row = browser.row(HOSTILE)
    assert not browser.all("main img"), "a key has become an element"
    assert "deny" in row.text and "rule client" in row.text and "ban 1 in a row" in row.text and "in 59 min" in row.text, row.text
    browser.picture("abuse")
    browser.press("Lift and exempt", within=row)
    browser.sees("The client is exempt for 7 days", "#messages")
    browser.until("the exemption is shown", lambda: "exempt" in browser.row(HOSTILE).text)
    assert [entry["mode"] for entry in listed()] == ["exempt"]
    browser.press("Remove…", within=browser.row(HOSTILE))
    browser.press("Remove")
    browser.sees("No runtime changes")
    browser.open("audit", fresh=False)
    browser.sees("lifted and exempt", "main")
    assert "hacked" not in browser.driver.title


def trial(browser, instance):
    """Dry run of a request, with the active rules and with a draft."""
    browser.open("try")
    browser.fill("Domain", "api")
    browser.fill("Descriptors", "plan=bronze\nnobody=knows")
    browser.press("Try", within=browser.driver.find_element("css selector", "main"))
    browser.sees("within limits: passes", "main")
    browser.sees("plan_bronze", ".walk")
    browser.sees("nothing", ".walk")
    browser.picture("try")
    first = browser.driver.find_element("css selector", "[aria-live] > .stack")
    used = first.text.split("resets")[0]
    browser.script("arguments[0].dataset.first = ''", first)
    assert "0 used" in used, used
    browser.press("Try", within=browser.driver.find_element("css selector", "main"))
    browser.until("the first answer is replaced", lambda: browser.all("[aria-live] > .stack") and not browser.all("[data-first]"))
    again = browser.text("[aria-live] > .stack").split("resets")[0]
    assert again == used, f"looking has charged something: {again!r}"
    browser.open("rules?filter=small", fresh=False)
    browser.press("Edit limit", within=browser.row("small"))
    browser.sees("is selected")
    browser.type("0")
    browser.press("Try")
    browser.fill("Domain", "small")
    browser.fill("Descriptors", "k=v")
    browser.choose("Against", "The draft in the editor")
    browser.press("Try", within=browser.driver.find_element("css selector", "main"))
    browser.sees("over limit: denied", "main")


def away(browser, instance):
    """An unreachable instance is shown with the time since when, and so is its recovery."""
    browser.open()
    browser.sees("ready", ".facts")
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.driver.execute_cdp_cmd("Network.enable", {})
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    browser.sees("Unreachable since", "#banner")
    browser.picture("away")
    online = {**offline, "offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", online)
    browser.until("the banner disappears", lambda: not browser.all("#banner .notice"))
    # That there was no connection stands in the console, as it should.
    browser.driver.get_log("browser")


def quiet(browser, instance):
    """No request is sent twice at once, and none while the page is hidden."""
    browser.open()
    browser.until("some answers", lambda: len(api_requests(browser)) > 8)
    by_path = {}
    for path, start, end in api_requests(browser):
        by_path.setdefault(path, []).append((start, end))
    for path, times in by_path.items():
        overlaps = [(one, next) for one, next in itertools.pairwise(times) if next[0] < one[1]]
        assert not overlaps, f"{path} was requested again before its response: {overlaps}"
    # Headless Chromium never hides a page, so the script pretends that it is hidden.
    seen = "Object.defineProperty(document, 'hidden', {configurable: true, value: arguments[0]});" \
           "document.dispatchEvent(new Event('visibilitychange'))"
    browser.script(seen, True)
    time.sleep(0.5)
    before = len(api_requests(browser))
    # A visible page polls the status every 2 s.
    time.sleep(2.5)
    assert len(api_requests(browser)) == before, "the page polls although it is hidden"
    browser.script(seen, False)
    browser.until("it polls again", lambda: len(api_requests(browser)) > before)


def slow(browser, instance):
    """A slow response delays nothing else, and does not make the instance unreachable."""
    browser.open()
    browser.sees("ready", ".facts")
    hold(browser, "GET", "api/v1/audit")
    browser.press("Audit")
    browser.until("the audit log is requested", lambda: browser.script("return window.held.length"))
    before = len([one for one in api_requests(browser) if one[0].endswith("/status")])
    browser.until("the state is requested repeatedly",
                  lambda: len([one for one in api_requests(browser) if one[0].endswith("/status")]) > before + 1)
    assert browser.script("return window.held.length") == 1, "what is in flight is requested again"
    browser.script("window.held[0].late()")
    browser.sees("The audit log: no response within 15 s", "main .notice")
    assert not browser.all("#banner .notice"), "one that is late is taken for an instance that is away"


def api_requests(browser):
    """The API requests of the page: path, start and end."""
    return browser.script("""
        return performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/v1/'))
            .map((one) => [new URL(one.name).pathname, one.startTime, one.responseEnd]);
    """)
