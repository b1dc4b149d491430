"""Errors and conflicts while editing, and rollback."""

from browser import hold
from selenium.webdriver.common.keys import Keys


def edit(browser, rule, words):
    """Goes to a rule's limit as one does, and types another one."""
    browser.open(f"rules?filter={rule}")
    browser.press("Edit limit", within=browser.row(rule))
    browser.sees("is selected")
    browser.type(words)


def invalid(browser, instance):
    """Each problem is shown with its line, which is one press away."""
    version = instance.get("versions")["current"]
    edit(browser, "plan_bronze", "many")
    problem = browser.sees("plans.yaml:", ".problems li").text
    line = int(problem.split("plans.yaml:")[1].split()[0])
    text = browser.script("return document.querySelector('.code textarea').value").split("\n")
    assert "many" in text[line - 1], f"{problem}: line {line} is {text[line - 1]!r}"
    assert browser.named("Review and apply…").get_attribute("aria-disabled") == "true"
    browser.press("Review and apply…")
    browser.sees("Solve the problems first", "#messages")
    assert not browser.all("dialog[open]")
    browser.press(f"plans.yaml:{line}")
    start = browser.script("return document.activeElement.selectionStart")
    assert "\n".join(text)[:start].count("\n") == line - 1
    browser.picture("invalid")
    assert instance.get("versions")["current"] == version, "nothing may be applied"
    # What was typed outlives the page; it ends when it is discarded.
    browser.driver.refresh()
    browser.sees("many", ".code .ink")
    browser.press("Discard edits…")
    browser.press("Discard")
    browser.does_not_see("many", ".code .ink")


def stale(browser, instance):
    """Two operators at once: the second one is notified, and loses nothing."""
    edit(browser, "plan_silver", "3000")
    browser.sees("valid", ".checked")
    browser.press("Review and apply…")
    browser.sees("3000", "dialog .changes")
    browser.fill("Comment", "Silver to 3000")
    number = instance.change("plans.yaml", "requests_per_unit: 20000", "requests_per_unit: 30000", "Gold to 30000")
    browser.press("Apply")
    browser.sees(f"bo made version {number}", "dialog")
    browser.sees("Gold to 30000", "dialog")
    browser.picture("stale")
    assert instance.limit("api", "plan_silver") != 3000, "nothing may be applied"
    browser.press("See what they changed")
    browser.sees("30000", "dialog[open] .diff")
    browser.picture("stale-diff")
    browser.key(Keys.ESCAPE)
    browser.press("Rebase my edit on it")
    browser.sees("3000", "dialog .changes")
    assert browser.field("Comment").get_attribute("value") == "Silver to 3000", "the comment is lost"
    browser.press("Apply")
    browser.sees("is active on", ".notice")
    assert instance.limit("api", "plan_silver") == 3000
    assert instance.limit("api", "plan_gold") == 30000, "what the other one changed is lost"


def conflict(browser, instance):
    """Two operators on the same line: both texts are shown, and nothing is applied before the operator decides."""
    edit(browser, "plan_gold", "41000")
    browser.sees("valid", ".checked")
    number = instance.change("plans.yaml", "requests_per_unit: 30000", "requests_per_unit: 42000", "Gold to 42000")
    browser.sees(f"Version {number} was made while you edit")
    browser.press("Rebase my edit")
    browser.sees("changed the same lines in plans.yaml")
    text = browser.script("return document.querySelector('.code textarea').value")
    assert "41000" in text and "42000" in text and "<<<<<<< yours" in text
    browser.sees("problem", ".checked")
    browser.picture("conflict")
    mine = [line for line in text.split("\n") if not line.startswith(("<<<<<<<", "=======", ">>>>>>>")) and "42000" not in line]
    area = browser.field("Rules in plans.yaml")
    area.clear()
    browser.script("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", area, "\n".join(mine))
    browser.sees("valid", ".checked")
    browser.press("Review and apply…")
    browser.sees("41000", "dialog .changes")
    browser.press("Apply")
    browser.sees("is active on", ".notice")
    assert instance.limit("api", "plan_gold") == 41000


def forced(browser, instance):
    """Denying all traffic of a domain must be confirmed by its name."""
    before = instance.limit("small", "k")
    browser.open("rules?filter=small")
    browser.press("Edit limit", within=browser.row("small"))
    browser.sees("is selected")
    browser.type("0")
    browser.sees("small", ".checked .badge.warn")
    browser.press("Review and apply…")
    browser.sees("This would hurt traffic", "dialog")
    browser.sees("0", "dialog .changes")
    browser.press("Apply")
    browser.sees("Confirm above", "dialog")
    browser.picture("forced")
    assert instance.limit("small", "k") == before, "nothing may be applied"
    browser.fill("To apply anyway, type the name of the domain: small", "small")
    browser.press("Apply")
    browser.sees("is active on", ".notice")
    assert instance.limit("small", "k") == 0


def unforced(browser, instance):
    """Objections to an earlier text are neither shown nor forced for a later one."""
    edit(browser, "small", "0")
    browser.sees("small", ".checked .badge.warn")
    hold(browser, "POST", "api/v1/validate")
    browser.script("const area = document.querySelector('.code textarea'); area.value = area.value.replace('unit: 0', 'unit: 6');"
                   "area.dispatchEvent(new Event('input'))")
    browser.sees("Checking", ".checked")
    browser.press("Review and apply…")
    browser.sees("6", "dialog .changes")
    assert not browser.all("dialog .notice"), "what stood against the text before is shown"
    hold(browser, "POST", "api/v1/versions")
    browser.press("Apply")
    sent = browser.until("the apply", lambda: browser.script("return window.held.map((one) => one.body)"))
    assert [one.get("force") for one in sent] == [None], sent
    browser.script("window.held[0].go()")
    browser.sees("is active on", ".notice")
    assert instance.limit("small", "k") == 6


def late(browser, instance):
    """An answer that comes late finds its dialog still open; where a browser closed it, nothing typed since is lost."""
    edit(browser, "small", "7")
    browser.sees("valid", ".checked")
    browser.press("Review and apply…")
    browser.sees("7", "dialog .changes")
    hold(browser, "POST", "api/v1/versions")
    browser.press("Apply")
    browser.until("the apply", lambda: browser.script("return window.held.length"))
    browser.key(Keys.ESCAPE)
    browser.press("Cancel")
    assert browser.all("dialog[open]"), "the dialog was closed before the response"
    browser.script("document.querySelector('dialog').close()")
    area = browser.field("Rules in small.yaml")
    browser.type(Keys.END + "# typed since", area)
    browser.script("window.held[0].go()")
    browser.sees("is current", "#messages")
    browser.sees("typed since", ".code .ink")
    # The version exists before it is active.
    browser.until("the limit is active", lambda: instance.limit("small", "k") == 7)
    assert browser.script("return sessionStorage.getItem('tollgate.draft')"), "what was typed since is no edit"
    number = instance.get("versions")["current"]
    browser.press("Review and apply…")
    browser.sees("typed since", "dialog .diff")
    browser.press("Apply")
    browser.until("the second apply", lambda: browser.script("return window.held.length") == 2)
    browser.script("window.held[1].go()")
    browser.until("the edit is applied upon that version", lambda: instance.get("versions")["current"] == number + 1)
    browser.until("no edit is left", lambda: browser.script("return !sessionStorage.getItem('tollgate.draft')"))


def rollback(browser, instance):
    """The way back to an earlier version: what it changes is shown first."""
    current = instance.get("versions")["current"]
    browser.open("versions")
    row = browser.row("Version 1")
    browser.press("Roll back…", within=row)
    browser.sees("changed", "dialog .changes")
    browser.picture("rollback")
    browser.fill("Comment", "As it was")
    browser.press("Roll back")
    browser.row(f"Version {current + 1}")
    browser.sees("Back to version 1: As it was")
    browser.until("the version in force", lambda: instance.get("status")["rules"]["version"] == current + 1)
    first, now = instance.get("versions/1")["files"], instance.get("versions/current")["files"]
    assert first == now, "the files are not those of version 1"
    browser.press(f"Diff version {current + 1}")
    browser.sees("version", "dialog select")
    browser.picture("diff")
