"""Roles and signing in."""

import records


def sign_in(browser, instance, tokens):
    """Without a token there is a form; a wrong token is reported; the right one opens the page, for this tab alone."""
    browser.open()
    browser.sees("Sign in", "h1")
    browser.picture("sign-in")
    browser.fill("Token", "not-a-token-at-all")
    browser.press("Sign in")
    browser.sees("Unknown token")
    browser.fill("Token", tokens["operator"])
    browser.press("Sign in")
    browser.sees("Overview", "h1")
    browser.sees("ana", "#who")
    kept = browser.script("return [JSON.stringify(localStorage), document.cookie, location.href]")
    assert tokens["operator"] not in "".join(kept), "the token is kept where it outlives the tab"
    browser.driver.refresh()
    browser.sees("ana", "#who")
    records.put(instance, [records.listed("abc")])
    shown = lambda: browser.script("return document.querySelector('[data-count=records]').textContent")
    browser.until("the number of runtime changes", lambda: shown() == "1")
    browser.press("Sign out")
    browser.sees("Sign in", "h1")
    assert shown() == "", "the next user sees the number of the last one"
    records.removed(instance)
    assert browser.script("return sessionStorage.length") == 0
    assert not browser.all(".nav a")


def viewer(browser, instance, tokens):
    """A viewer sees everything and changes nothing; each control says why."""
    version = instance.get("versions")["current"]
    browser.open()
    browser.fill("Token", tokens["viewer"])
    browser.press("Sign in")
    browser.sees("viewer", "#who")
    browser.open("rules?filter=plan_bronze", fresh=False)
    button = browser.named("Switch…", within=browser.row("plan_bronze"))
    browser.until("it is disabled", lambda: button.get_attribute("aria-disabled") == "true")
    browser.press("Switch…", within=browser.row("plan_bronze"))
    browser.sees("role viewer", "#messages")
    assert not browser.all("dialog[open]")
    browser.sees("role viewer", "main .notice")
    browser.press("Edit limit", within=browser.row("plan_bronze"))
    browser.sees("is selected")
    browser.type("9999")
    browser.sees("valid", ".checked")
    apply = browser.named("Review and apply…")
    assert apply.get_attribute("aria-disabled") == "true"
    browser.press("Review and apply…")
    assert not browser.all("dialog[open]")
    browser.picture("viewer")
    # A request that bypasses the page is refused by the instance.
    status = browser.script("""
        const headers = {authorization: `Bearer ${sessionStorage.getItem('tollgate.token')}`, 'content-type': 'application/json'};
        return fetch('api/v1/versions', {method: 'POST', headers, body: JSON.stringify({based_on: 1, files: {}, comment: ''})})
            .then((answer) => answer.status);
    """)
    assert status == 403, status
    assert instance.get("versions")["current"] == version


def directory(browser, instance):
    """Rules from files are shown and can be tried out, and it is said how to change them here."""
    browser.open("editor")
    browser.sees("--rules redis")
    browser.sees("--rules memory")
    browser.sees("api", ".code .ink")
    browser.sees("valid", ".checked")
    assert browser.named("Review and apply…").get_attribute("aria-disabled") == "true"
    browser.press("Review and apply…")
    browser.sees("change them there", "#messages")
    browser.picture("directory")
    browser.open("versions")
    browser.sees("--rules redis")


def by_name(browser, instance):
    """Without tokens, requests to a host name are refused, as any foreign page could send them; the page shows why."""
    own = browser.url
    browser.driver.get(own.replace("127.0.0.1", "tollgate.localhost"))
    browser.sees("The instance refuses requests", "#banner")
    browser.sees("localhost", "#banner")
    browser.driver.get("about:blank")
    browser.driver.get_log("performance")
    browser.open()
    browser.sees("Overview", "h1")
