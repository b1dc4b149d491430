"""Appearance: small screens, the dark theme, screen readers, and reduced motion."""

import importlib.util
import pathlib

VIEWS = ["overview", "rules", "talkers", "records", "bans", "editor", "versions", "try", "events", "audit"]
SIZES = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
# The engine takes a while, and finds the same in colours at any width, and in structure in any colours.
EXAMINED = [(1280, "light"), (400, "dark")]
READY = {"overview": ".headline", "rules": "tbody tr", "talkers": "main .panel", "records": "main .panel", "bans": "main .panel",
         "editor": ".checked .badge.ok", "versions": "tbody tr", "try": "form", "audit": "tbody tr",
         "events": "main .panel"}


def looks(browser, instance):
    """Every view at every size and theme: nothing stands beyond the edge, and the accessibility engine finds nothing."""
    engine = axe()
    for width, theme in SIZES:
        browser.size(width, 800, theme)
        browser.open()
        for view in VIEWS:
            browser.script("location.hash = `#/${arguments[0]}`", view)
            browser.until(f"{view} is drawn", lambda view=view: browser.all(READY[view]))
            beyond = browser.script("return document.documentElement.scrollWidth - innerWidth")
            assert beyond <= 0, f"{view} is {beyond} px wider than {width} px"
            examined = (width, theme) in EXAMINED
            violations = examined and browser.driver.execute_async_script(engine + RUN)
            assert not violations, f"{view}, {width} px, {theme}: " + "\n".join(violations)
            browser.picture(f"{view}-{width}-{theme}")
    browser.size(1280, 800)


def still(browser, instance):
    """Reduced motion disables transitions; the theme can be chosen, and persists."""
    browser.size(1280, 800, motion="reduce")
    browser.open()
    browser.sees("Overview", "h1")
    moving = browser.script("return [...document.querySelectorAll('*')].filter((node) => "
                            "parseFloat(getComputedStyle(node).transitionDuration) > 0).length")
    assert moving == 0, f"{moving} elements have transitions"
    browser.press("Dark theme")
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    dark = browser.script(ground)
    browser.driver.refresh()
    browser.sees("Overview", "h1")
    assert browser.script(ground) == dark and sum(int(part) for part in dark[4:-1].split(",")) < 120, dark
    browser.press("Light theme")
    browser.size(1280, 800)


def axe():
    """The engine, from the package that brings it along."""
    place = importlib.util.find_spec("selenium_axe_python").submodule_search_locations[0]
    return pathlib.Path(place, "axe-core", "axe.min.js").read_text()


RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], resultTypes: ['violations']})
  .then(({violations}) => done(violations.map(({id, help, nodes}) =>
    `${id}: ${help}: ${nodes.map((node) => `${node.target} ${node.any.map((one) => one.message)}`).join(' | ')}`.slice(0, 600))))
  .catch((error) => done([String(error)]));
"""
