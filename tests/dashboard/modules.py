"""The modules of the page that compute: the browser that runs them evaluates expressions of theirs."""


def evaluate(browser, module, expression):
    """The value of an expression in which `it` is a module of the page."""
    return browser.driver.execute_async_script(
        "const done = arguments[1]; import(`./assets/js/${arguments[0]}`).then((it) => done("
        + expression + "), (error) => done(String(error)))", module)


def same(found, expected, what):
    assert found == expected, f"{what}: {found!r} is not {expected!r}"


def parts(browser, instance):
    browser.open()
    browser.sees("Overview", "h1")
    merging(browser)
    finding(browser)
    reading(browser)
    telling(browser)
    forcing(browser)
    comparing(browser)


def merging(browser):
    """Two edits of one text."""

    def merged(base, mine, theirs):
        return evaluate(browser, "merge.js", f"it.mergeText({base!r}, {mine!r}, {theirs!r}, 'version 9')")

    def both(text):
        return {"text": text, "hasConflict": False}

    same(merged("a\nb\nc", "a\nB\nc", "a\nb\nc\nd"), both("a\nB\nc\nd"), "changes of different lines")
    same(merged("a\nb\nc", "b\nc", "a\nb"), both("b"), "a line removed at each end")
    same(merged("a\nb\nc", "a\nx\nc", "a\nx\nc"), both("a\nx\nc"), "the same change")
    same(merged("", "mine", ""), both("mine"), "a change of nothing")
    same(merged("a\na\nb", "a\na\na\nb", "a\na\nb\nc"), both("a\na\na\nb\nc"), "lines that are the same")
    conflict = merged("a\nb\nc", "a\nmine\nc", "a\ntheirs\nc")
    same(conflict, {"text": "a\n<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> version 9\nc", "hasConflict": True}, "a conflict")
    files = evaluate(browser, "merge.js", "it.mergeFiles({a: '1', b: '1', c: '1'}, {a: '2', c: '1', n: 'new'}, {a: '1', b: '2', o: 'o'}, 'v')")
    same(files, {"files": {"a": "2", "b": "2", "n": "new", "o": "o"}, "conflicts": ["b"]}, "files")


def finding(browser):
    """Where a limit is written, in all the ways in which it may be."""

    def found(text, line):
        place = evaluate(browser, "locate.js", f"it.findLimit({text!r}, {line})")
        return place and (place["line"], text.split("\n")[place["line"] - 1][place["from"]:place["to"]], place["isShared"])

    block = "descriptors:\n- key: a\n  descriptors:\n  - key: b\n    rate_limit:\n      requests_per_unit: 5 # of b\n  rate_limit:\n" \
            "    unit: minute\n    # requests_per_unit: 1\n    requests_per_unit: 70\n- key: c\n"
    same(found(block, 2), (10, "70", False), "a limit behind descriptors inside")
    same(found(block, 4), (6, "5", False), "a limit inside")
    same(found(block, 11), None, "no limit")
    same(found("- key: a\n  rate_limit: {unit: hour, requests_per_unit: 12}\n", 1), (2, "12", False), "in braces")
    same(found("- {key: a, rate_limit: {'requests_per_unit': '12'}}\n", 1), (1, "12", False), "all in braces")
    shared = "x: &usual\n  unit: hour\n  requests_per_unit: 9\nd:\n- key: a\n  rate_limit: *usual\n- key: b\n  rate_limit:\n" \
             "    <<: *usual\n    requests_per_unit: 8\n"
    same(found(shared, 5), (3, "9", True), "a shared limit")
    same(found(shared, 7), (10, "8", False), "a shared limit with a number of its own")
    same(found("", 7), None, "no text")


def reading(browser):
    """Descriptors as text."""

    def pairs(text):
        found = evaluate(browser, "descriptor.js", f"it.readDescriptor({text!r}).map((pair) => [pair.key, pair.value])")
        return [tuple(pair) for pair in found]

    same(pairs("a=1,b=2"), [("a", "1"), ("b", "2")], "two pairs")
    same(pairs("path=/a,b,c=1"), [("path", "/a,b"), ("c", "1")], "a comma in a value")
    same(pairs("q=a=b"), [("q", "a=b")], "an equals sign in a value")
    same(pairs("xff=10.0.0.1, 10.0.0.2"), [("xff", "10.0.0.1, 10.0.0.2")], "a list in a value")
    same(pairs('a="b,c=d" , e = f'), [("a", "b,c=d"), ("e", "f")], "a value in quotes")
    for text in ["k", "k=v,", "=v", 'k="v"w']:
        refused = evaluate(browser, "descriptor.js", f"(() => {{ try {{ it.readDescriptor({text!r}) }} catch {{ return true }} }})()")
        same(refused, True, text)
    shown = evaluate(browser, "descriptor.js", """it.writeDescriptor([{key: 'a', value: 'b,c=d'}, {key: 'e', value: 'f'}])""")
    same(shown, 'a="b,c=d",e=f', "a value that needs quotes")
    same(pairs("k=<img src=x onerror=y>"), [("k", "<img src=x onerror=y>")], "a value that reads like markup")


def telling(browser):
    """Numbers, for people."""

    def told(expression):
        return evaluate(browser, "format.js", expression)

    same(told("[0, 999, 1234, 99999, 1234567].map(it.count)"), ["0", "999", "1,234", "99,999", "1.23M"], "counts")
    same(told("[0, 0.01, 0.44, 12.4, 4321].map(it.rate)"), ["0", "<0.1", "0.4", "12", "4,321"], "rates")
    same(told("[0, 0.0001, 0.034, 0.5, 1].map(it.percent)"), ["0 %", "<0.1 %", "3.4 %", "50 %", "100 %"], "parts")
    same(told("[null, 12, 1234, 56789, 2500000].map(it.micros)"), ["–", "12 µs", "1.2 ms", "57 ms", "2.5 s"], "latencies")
    same(told("[900, 61000, 3700000, 90000000, 200000000].map(it.span)"), ["1 s", "1 min", "1 h 1 min", "1 day", "2 days"], "times")
    same(evaluate(browser, "chart.js", "[0, 1, 7, 1900].map(it.ticks)"), [[0, 1], [0, 0.5, 1], [0, 2.5, 5, 7.5], [0, 1000, 2000]], "scales")


def forcing(browser):
    """Whether what stands against a change was all confirmed."""
    one, other = {"code": "denies_all", "domain": "a"}, {"code": "drops_domain", "domain": "b"}

    def covered(confirmed, reasons):
        return evaluate(browser, "views/force.js", f"it.covers({confirmed!r}, {reasons!r})")

    same(covered([one, other], [one]), True, "less than was confirmed")
    same(covered([one], [one, other]), False, "more than was confirmed")
    same(covered([one], [{**one, "domain": "b"}]), False, "another domain")
    same(covered([one], [{**one, "code": "drops_domain"}]), False, "another reason")


def comparing(browser):
    """Differences between two limits."""

    def apart(before, after):
        return evaluate(browser, "diff_view.js", f"((found) => [found.old, found.now, found.same])(it.apart({before!r}, {after!r}))")

    same(apart("60 per minute, fixed_window, name free", "250 per minute, fixed_window, name free"),
         ["60 per minute", "250 per minute", "fixed_window, name free"], "another amount")
    same(apart("60 per minute, shadow", "60 per minute"), ["60 per minute, shadow", "60 per minute", ""], "less of the same")
    same(apart("60 per minute", "unlimited"), ["60 per minute", "unlimited", ""], "all of it")
