//! Configurations that envoyproxy/ratelimit rejects, with all problems reported at once.

use super::*;

const LIMIT: &str = "{unit: second, requests_per_unit: 1}";

#[test]
fn broken_syntax_names_its_line() {
    assert_says(&errors("domain: d\ndescriptors:\n  - key: [a\n"), &["a.yaml:", "invalid YAML"]);
    assert_says(&errors("domain: d\ndescriptors: \"x\n"), &["a.yaml:"]);
}

#[test]
fn wrong_types_say_what_was_expected() {
    for (yaml, says) in [
        ("domain: d\ndescriptors: foo\n", "a.yaml:2: descriptors: expected a list, found the text \"foo\""),
        ("domain: [d]\n", "a.yaml:1: domain: expected a text, found a list"),
        ("just text\n", "a.yaml:1: expected a mapping, found the text \"just text\""),
    ] {
        assert_says(&errors(yaml), &[says]);
    }
    for (limit, says) in [
        ("requests_per_unit: -1", "expected a whole number from 0 to 9007199254740991, found `-1`"),
        ("requests_per_unit: 9007199254740992", "found `9007199254740992`"),
        ("requests_per_unit: '5'", "found the text \"5\""),
        ("requests_per_unit: 1.5", "found `1.5`"),
        ("requests_per_unit: [5]", "found a list"),
    ] {
        let yaml = domain(&format!("  - key: a\n    rate_limit:\n      unit: day\n      {limit}\n"));
        assert_says(&errors(&yaml), &["a.yaml:6: descriptors[0].rate_limit.requests_per_unit: ", says]);
    }
    for (line, says) in [
        ("shadow_mode: 'true'", "expected true or false, found the text \"true\""),
        ("shadow_mode: 1", "expected true or false, found `1`"),
        ("metadata: foo", "expected a mapping"),
        ("rate_limit: foo", "expected a mapping"),
    ] {
        assert_says(&errors(&domain(&format!("  - key: a\n    {line}\n"))), &["a.yaml:4: ", says]);
    }
}

#[test]
fn keys_that_are_no_texts_are_rejected() {
    for key in ["0.25", "1", "yes", "~", "[a]"] {
        let yaml = domain(&format!("  - key: a\n    ? {key}\n    : x\n"));
        assert_says(&errors(&yaml), &["a.yaml:4: descriptors[0]: expected a text as the key, found"]);
    }
}

#[test]
fn unknown_keys_are_rejected_with_a_guess_at_what_was_meant() {
    let yaml = domain("  - key: a\n    ratelimit:\n      unit: day\n");
    assert_eq!(errors(&yaml), "a.yaml:4: descriptors[0].ratelimit: unknown key; did you mean `rate_limit`?");
    let text = errors(&with("", "unit: day, requestsperunit: 5, requests_per_unit: 5"));
    assert_says(&text, &["rate_limit.requestsperunit: unknown key; did you mean `requests_per_unit`?"]);
    let text = errors("domain: d\nx-templates: 1\n");
    assert_says(&text, &["x-templates: unknown key; expected one of domain"]);
    // Unknown keys are also reported in ignored sections.
    assert_says(&errors("domain: d\nreplaces: [{foo: 1}]\n"), &["a.yaml:2: replaces[0].foo: unknown key"]);
}

#[test]
fn lists_hold_mappings_only() {
    let text = errors("domain: d\ndescriptors: [a, {key: b}, ~, [c]]\n");
    assert_says(
        &text,
        &[
            "a.yaml:2: descriptors[0]: expected a mapping, found the text \"a\"",
            "descriptors[2]: expected a mapping, found nothing",
            "descriptors[3]: expected a mapping, found a list",
        ],
    );
    let yaml = domain("  - key: a\n    rate_limit: {unit: day, requests_per_unit: 1, replaces: [x]}\n");
    assert_says(&errors(&yaml), &["rate_limit.replaces[0]: expected a mapping, found the text \"x\""]);
}

#[test]
fn floats_are_rejected_outside_of_metadata() {
    for value in ["1.5", ".5", "1e3", "089", "1_000.0", ".inf", ".nan", "18446744073709551616"] {
        let text = errors(&domain(&format!("  - key: a\n    value: {value}\n")));
        assert_says(&text, &["a.yaml:4: descriptors[0].value: ", "quote it"]);
    }
    assert_says(&errors("domain: d\nunit: 1.5\n"), &["a.yaml:2: unit: `1.5` is a number with a fraction"]);
}

#[test]
fn a_file_without_a_domain_is_rejected() {
    for yaml in ["", "---\n", "# nothing\n", "{}", "domain: ''\n", "domain: ~\n", "descriptors: []\n"] {
        assert_says(&errors(yaml), &["domain: is missing or empty"]);
    }
}

#[test]
fn two_files_of_one_domain_are_rejected_unless_domains_are_merged() {
    let files = [("a.yaml", "domain: d\n"), ("b.yaml", "# two\ndomain: d\n")];
    let text = load_all(&files, Options::default()).unwrap_err().to_string();
    assert_says(&text, &["b.yaml:2: domain: the domain `d` is a duplicate of that in a.yaml"]);
}

#[test]
fn a_descriptor_needs_a_key() {
    let text = errors(&domain("  - value: a\n  - key: ''\n  - key: ~\n  - {}\n"));
    assert_says(
        &text,
        &[
            "a.yaml:3: descriptors[0]: has no `key`",
            "a.yaml:4: descriptors[1].key: is empty",
            "a.yaml:5: descriptors[2]: has no `key`",
            "a.yaml:6: descriptors[3]: has no `key`",
        ],
    );
}

#[test]
fn descriptors_of_a_level_read_differently() {
    let yaml = domain(
        "  - key: parent\n    descriptors:\n      - {key: key, value: value}\n      - {key: key}\n      \
         - {key: key, value: value}\n",
    );
    assert_eq!(
        errors(&yaml),
        "a.yaml:7: descriptors[0].descriptors[2]: `d.parent.key_value` is a duplicate of a.yaml:5; \
         expected unique keys and values (joined by `_`) in a list"
    );
    for (one, other) in [
        ("key: a_b", "{key: a, value: b}"),
        ("key: a", "{key: a, value: ''}"),
        ("{key: a, value: 'b*'}", "{key: a, value: 'b*'}"),
        ("{key: a, cidr: 10.0.0.0/8}", "{key: a, cidr: 10.1.2.3/8}"),
        ("{key: a, cidr: 10.0.0.0/8}", "{key: a, value: 10.0.0.0/8}"),
        ("{key: a, regex: b}", "{key: a, regex: b}"),
        ("{key: a, regex: b}", "{key: a, value: ~b}"),
    ] {
        assert_says(&errors(&domain(&format!("  - {one}\n  - {other}\n"))), &["is a duplicate of a.yaml:3"]);
    }
}

#[test]
fn a_limit_needs_a_unit_unless_it_is_unlimited() {
    for (limit, says) in [
        ("requests_per_unit: 5", "a.yaml:4: descriptors[0].rate_limit: has no `unit`"),
        ("", "has no `unit`"),
        ("unit: foo, requests_per_unit: 5", "rate_limit.unit: `foo` is not a unit; expected one of"),
        ("unit: minutes, requests_per_unit: 5", "did you mean `minute`?"),
        ("unit: unknown, requests_per_unit: 5", "`unknown` is not a unit"),
        ("unit: '', requests_per_unit: 5", "`` is not a unit"),
        ("unlimited: false", "has no `unit`"),
        ("unlimited: true, unit: second", "rate_limit.unit: contradicts `unlimited: true`"),
    ] {
        let found = errors(&domain(&format!("  - key: a\n    rate_limit: {{{limit}}}\n")));
        assert!(found.contains(says), "{limit}: {found}");
    }
}

#[test]
fn replaces_names_another_limit() {
    let limit = |more: &str| {
        let limit = format!("{{unit: day, requests_per_unit: 1, {more}}}");
        errors(&domain(&format!("  - key: a\n    rate_limit: {limit}\n")))
    };
    for empty in ["{}", "{name: ''}", "{name: ~}"] {
        assert_says(&limit(&format!("replaces: [{empty}]")), &["rate_limit.replaces[0]: has no `name`"]);
    }
    assert_says(&limit("name: x, replaces: [{name: x}]"), &["replaces[0].name: is the limit's own name"]);
}

#[test]
fn share_threshold_needs_a_pattern() {
    for value in ["", "    value: v\n"] {
        let text = errors(&domain(&format!("  - key: k\n{value}    share_threshold: true\n")));
        assert_says(&text, &["descriptors[0].share_threshold: has no effect on"]);
    }
}

#[test]
fn metadata_has_to_be_json() {
    for metadata in ["{a: [.nan]}", "{b: .inf}", "{a: {[x]: 1}}"] {
        let yaml = domain(&format!("  - key: a\n    rate_limit: {LIMIT}\n    metadata: {metadata}\n"));
        assert_says(&errors(&yaml), &["a.yaml:5: descriptors[0].metadata"]);
    }
}

#[test]
fn ten_mistakes_in_one_directory_are_reported_at_once() {
    let files = [
        (
            "a.yaml",
            "domain: a\ndescriptors:\n  - key: x\n    valeu: 1\n  - value: y\n  - key: f\n    value: 1.5\n",
        ),
        (
            "b.yaml",
            "domain: b\ndescriptors:\n  - key: x\n    rate_limit:\n      unit: fortnight\n      \
             requests_per_unit: -1\n  - key: x\n",
        ),
        ("c.yaml", "domain: a\ndescriptors:\n  - key: x\n    share_threshold: true\n"),
        ("d.yaml", "domain: d\n  bad: indent\n"),
        ("sub/e.yaml", "domain: ''\ndescriptors:\n  - key: x\n    shadow_mode: maybe\n"),
    ];
    let text = load_all(&files, Options::default()).unwrap_err().to_string();
    let positions: Vec<_> = text.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let expected = "a.yaml:4 a.yaml:5 a.yaml:7 b.yaml:5 b.yaml:6 b.yaml:7 c.yaml:1 c.yaml:4 d.yaml:2 \
                    sub/e.yaml:1 sub/e.yaml:4";
    assert_eq!(positions.join(" "), expected, "{text}");
}
