"""A new user raises the limit of the tier `free`."""

import time

from selenium.webdriver.common.keys import Keys

# How long a person looks before each thing that they do.
PAUSE_S = 1.5
MOST_S = 60
MOST_INTERACTIONS = 15


def newcomer(browser, instance):
    """From the address of the page to the new limit, without knowing where anything is."""
    browser.pause = PAUSE_S
    start, before = time.monotonic(), browser.interactions
    browser.open()
    browser.sees("Overview", "h1")
    browser.press("Rules")
    browser.fill("Find a rule", "free")
    row = browser.row("tier_free.api_key")
    assert "60" in row.text, row.text
    browser.press("Edit limit", within=row)
    # What is to be changed is selected: a newcomer only has to type.
    browser.sees("is selected")
    browser.type("25o")
    browser.sees("1 problem", ".checked")
    browser.sees("tiers.yaml:", ".problems")
    browser.type(Keys.BACKSPACE + "0")
    browser.sees("valid", ".checked")
    browser.picture("newcomer-edit")
    browser.press("Review and apply…")
    browser.sees("250", "dialog .changes")
    browser.type("Free tier to 250")
    browser.picture("newcomer-review")
    browser.press("Apply")
    browser.sees("is active on", ".notice")
    took, did = time.monotonic() - start, browser.interactions - before
    browser.pause = 0.0
    browser.picture("newcomer-done")
    print(f"a newcomer raised a limit in {took:.0f} s and {did} interactions, {PAUSE_S} s before each")
    assert took < MOST_S, f"it took {took:.0f} s"
    assert did <= MOST_INTERACTIONS, f"it took {did} interactions"


def keyboard(browser, instance):
    """Raises the limit by the keyboard alone, without a click."""
    browser.open()
    browser.sees("Overview", "h1")
    browser.key(Keys.TAB)
    assert browser.focused().accessible_name == "Skip to content"
    browser.picture("keyboard-skip")
    browser.tab_to("Rules")
    browser.key(Keys.ENTER)
    browser.until("the focus on the view's name", lambda: browser.focused().tag_name == "h1" and browser.focused().text == "Rules")
    browser.row("plan_silver")
    browser.tab_to("Find a rule")
    browser.key("plan_silver")
    browser.until("only that rule", lambda: len(browser.all("main tbody tr")) == 1)
    browser.tab_to("Edit limit of plan_silver")
    ring = browser.script("const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]")
    assert ring == ["solid", "2px"], f"the focus is not to be seen: {ring}"
    browser.key(Keys.ENTER)
    browser.sees("is selected")
    browser.key("2400")
    browser.sees("valid", ".checked")
    browser.tab_to("Review and apply…")
    browser.key(Keys.ENTER)
    browser.sees("2400", "dialog .changes")
    # The focus stays inside of the dialog, whatever its number of parts.
    for _ in range(12):
        browser.key(Keys.TAB)
        inside = browser.script("const a = document.activeElement; return a === document.body || !!a.closest('dialog')")
        assert inside, "Tab leaves the dialog"
    browser.tab_to("Apply", backwards=True)
    browser.key(Keys.ENTER)
    browser.sees("is active on", ".notice")
    assert instance.limit("api", "plan_silver") == 2400
