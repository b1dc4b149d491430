"""Runtime changes: many of them, and those that another operator changes meanwhile."""

import appearance
from selenium.webdriver.common.keys import Keys

RECORDS = 10_000
STEP = 1_000
SIZES = [390, 1024, 1440]
LONG = "a-key-with-a-long-name-" * 10


def put(instance, records, reason="A test", **others):
    body = {"records": records, "reason": reason, "force": True, **others}
    status, answer = instance.call("PUT", "records", body)
    assert status == 200, answer
    return answer["records"]


def of_kind(instance, kind):
    return [one for one in instance.get("records?limit=10000")["records"] if one["kind"] == kind]


def removed(instance):
    """Removes all records."""
    for one in instance.get("records?limit=10000")["records"]:
        status, answer = instance.call("DELETE", f"records/{one['key']}")
        assert status in (200, 204), answer


def listed(value, name="api_key", **others):
    pair = {"key": name, "value": value, "match": "exact"}
    return {"kind": "list_entry", "list": "deny", "domain": "api", "descriptor": [pair], **others}


def keyed(value, limit=7):
    return {"kind": "override", "domain": "api", "rule": "api_key", "descriptor": [{"key": "api_key", "value": value}],
            "rate_limit": {"requests_per_unit": limit}}


def rows(browser):
    return browser.all("main tbody tr")


def many(browser, instance):
    """Ten thousand records are shown in pages, found and filtered, at any width."""
    for first in range(0, RECORDS - 3, STEP):
        put(instance, [keyed(f"customer-{number}") for number in range(first, min(first + STEP, RECORDS - 3))])
    put(instance, [listed(LONG, LONG, expires_in_s=3600), keyed(f"customer-{LONG}"),
                   {"kind": "switch", "domain": "api", "rule": "plan_bronze", "mode": "shadow"}])
    for width in SIZES:
        browser.size(width, 800)
        browser.open("records")
        browser.until("the first page", lambda: len(rows(browser)) == 100)
        fits(browser, width)
        browser.picture(f"records-{width}")
        browser.choose("Kind", "Switches (1)")
        browser.until("the switch", lambda: [row for row in rows(browser) if "plan_bronze" in row.text] and len(rows(browser)) == 1)
        browser.choose("Kind", "All kinds (10,000)")
        browser.fill("Search", "CUSTOMER-12")
        browser.until("those", lambda: all("customer-12" in row.text for row in rows(browser)) and len(rows(browser)) == 100)
        browser.press("Next page")
        browser.sees("Page 2", "main")
        browser.until("the focus", lambda: browser.focused().accessible_name == "Next page")
        browser.until("111 of them", lambda: len(rows(browser)) == 11)
        browser.press("Previous page")
        browser.sees("Page 1", "main")
        browser.fill("Search", "a-long-name")
        browser.until("two", lambda: len(rows(browser)) == 2)
        fits(browser, width)
        browser.picture(f"records-long-{width}")
        browser.press("Edit…", within=browser.row("list entry"))
        fits(browser, width)
        violations = browser.driver.execute_async_script(appearance.axe() + appearance.RUN)
        assert not violations, f"{width} px: " + "\n".join(violations)
        browser.key(Keys.ESCAPE)
        browser.until("the focus on the button", lambda: browser.focused().accessible_name.startswith("Edit…"))


def fits(browser, width):
    beyond = browser.script("return document.documentElement.scrollWidth - innerWidth")
    assert beyond <= 0, f"{beyond} px wider than {width} px"


def changed(browser, instance):
    """A record is edited, and removed; one that another operator changed meanwhile is shown, and replaced only then."""
    removed(instance)
    put(instance, [keyed("a"), keyed("b"), listed("c", expires_in_s=7200)])
    browser.open("records")
    browser.press("Edit…", within=browser.row("api_key for api_key=a"))
    browser.fill("Requests per unit", "8")
    put(instance, [keyed("a", 99)], reason="It is urgent")
    browser.press("Override")
    browser.sees("Changed meanwhile by bo", "dialog")
    browser.sees("99 per unit", "dialog")
    browser.sees("It is urgent", "dialog")
    browser.picture("record-changed")
    limits = lambda: sorted(one["rate_limit"]["requests_per_unit"] for one in of_kind(instance, "override"))
    assert limits() == [7, 99], limits()
    browser.press("Override")
    browser.sees("api_key is overridden", "#messages")
    assert limits() == [7, 8], limits()
    # An end stays where it is.
    before = of_kind(instance, "list_entry")[0]["expires_at_ms"]
    browser.press("Edit…", within=browser.row("api_key=\"c\""))
    browser.fill("Reason", "Another reason")
    browser.press("Deny")
    browser.sees("Another reason", "main")
    after = of_kind(instance, "list_entry")[0]["expires_at_ms"]
    assert abs(after - before) < 5_000, (before, after)
    # Another one for the same key is no other record.
    browser.open("rules?filter=api_key", fresh=False)
    browser.press("Override…", within=browser.row("api_key"))
    browser.fill("Requests per unit", "9")
    browser.fill("Only for the key", "api_key=b")
    browser.fill("Reason", "By mistake")
    browser.press("Override")
    browser.sees("Exists already, by bo", "dialog")
    browser.key(Keys.ESCAPE)
    browser.press("2 keys overridden")
    browser.sees("Only of rule api_key of domain api", "main")
    browser.until("its overrides", lambda: len(rows(browser)) == 2)
    browser.press("Remove…", within=browser.row("api_key=b"))
    browser.picture("record-remove")
    browser.press("Remove")
    browser.until("the other one", lambda: len(rows(browser)) == 1)
    browser.until("the focus", lambda: browser.focused().accessible_name.startswith("Edit…"))
    removed(instance)


def emergency(browser, instance):
    """An emergency begins, is changed and ends; so do two, of which one is changed meanwhile."""
    browser.open("records")
    browser.press("Emergency…")
    browser.fill("Domain", "api")
    browser.fill("Reason", "Redis is replaced")
    browser.press("Begin")
    row = browser.row("every rule")
    assert "emergency" in row.text and "Redis is replaced" in row.text, row.text
    browser.press("Edit…", within=row)
    browser.fill("Reason", "Redis is slow")
    browser.choose("For", "Until removed")
    browser.press("Save")
    browser.until("no end", lambda: "never" in browser.row("Redis is slow").text)
    browser.sees("Emergency:", "#banner")
    browser.press("Emergency…", within=browser.driver.find_element("css selector", "#banner"))
    browser.sees("Redis is slow", "dialog")
    browser.key(Keys.ESCAPE)
    # Of two, another operator changes one while both are to be ended.
    of = lambda domain: {"kind": "switch", "domain": domain, "rule": "*", "mode": "emergency"}
    put(instance, [of("*")], reason="All is slow")
    browser.sees("every domain", "#banner")
    browser.press("Emergency…", within=browser.driver.find_element("css selector", "#banner"))
    browser.sees("All is slow", "dialog")
    put(instance, [of("*")], reason="It is not over")
    browser.press("End")
    browser.sees("Removed 1 of 2", "dialog")
    browser.sees("It is not over", "dialog")
    browser.does_not_see("Redis is slow")
    assert [one["reason"] for one in of_kind(instance, "switch")] == ["It is not over"]
    browser.press("End")
    browser.sees("No runtime changes", "main")
    browser.does_not_see("Emergency:", "#banner")
