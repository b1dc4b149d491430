//! Warnings.

use tollgate_core::descriptor::RequestBounds;

use super::*;

#[test]
fn known_keys_in_the_wrong_place() {
    let yaml = domain("  - key: a\n    rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}\n");
    assert_eq!(
        warnings(&yaml),
        "a.yaml:4: warning: descriptors[0].rate_limit.shadow_mode: has no effect in `rate_limit`; it belongs \
         to a descriptor"
    );
    assert_says(&warnings("domain: d\nunit: day\n"), &["a.yaml:2: warning: unit: has no effect"]);
    assert_says(&warnings("domain: d\nmetadata: {anything: 1.5}\n"), &["metadata: has no effect"]);
}

#[test]
fn matters_of_limits_without_a_limit() {
    for line in ["shadow_mode: true", "quota_mode: true", "detailed_metric: true", "metadata: {a: b}"] {
        let text = warnings(&domain(&format!("  - key: a\n    {line}\n")));
        assert_says(&text, &["a.yaml:4: warning: descriptors[0].", "has no effect without a `rate_limit`"]);
    }
    clean(&domain("  - key: a\n    shadow_mode: false\n"));
}

#[test]
fn flags_above_limits_that_have_them_too() {
    for flag in ["shadow_mode", "quota_mode", "detailed_metric"] {
        let nested = |first: &str, second: &str| {
            domain(&format!(
                "  - key: a\n    {flag}: true\n    descriptors:\n    - key: b\n      {flag}: true\n      \
                 descriptors: [{{key: c, {first}{LIMIT}}}, {{key: d, {second}{LIMIT}}}]\n"
            ))
        };
        let stated = &*format!("{flag}: true, ");
        clean(&nested(stated, stated));
        let text = warnings(&nested(stated, ""));
        let at = |path: &str| format!("{path}.{flag}: has no effect without a `rate_limit`");
        assert_says(&text, &[&at("descriptors[0]"), &at("descriptors[0].descriptors[0]")]);
    }
    let without_limits =
        "  - key: a\n    shadow_mode: true\n    descriptors: [{key: b, shadow_mode: true}]\n";
    assert_eq!(warnings(&domain(without_limits)).lines().count(), 2);
}

#[test]
fn a_limit_without_a_number_and_replaced_names_that_no_limit_has() {
    for (keys, says) in [
        ("", "descriptors[0].rate_limit: has no `requests_per_unit`, so all requests are denied"),
        (
            "requests_per_unit: 1, replaces: [{name: x}]",
            "replaces[0].name: no limit of the domain `d` has the name `x`",
        ),
    ] {
        assert_says(&warnings(&with("", &format!("unit: day, {keys}"))), &[says]);
    }
}

#[test]
fn what_an_earlier_wildcard_takes_can_never_match() {
    for (first, second) in [
        ("value: 'a*'", "value: 'ab*'"),
        ("value: '*'", "value: 'a*'"),
        ("value: '*'", "cidr: 10.0.0.0/8"),
        ("value: '*'", "regex: ^a"),
        ("value: '*'", "descriptors: []"),
    ] {
        let text = warnings(&domain(&format!("  - key: k\n    {first}\n  - key: k\n    {second}\n")));
        assert_says(&text, &["a.yaml:5: warning: descriptors[1]: never matches", "at a.yaml:3"]);
    }
    // A key alone comes last wherever it stands.
    let text = warnings(&domain("  - key: k\n  - key: k\n    value: '*'\n"));
    assert_says(&text, &["a.yaml:3: warning: descriptors[0]: never matches"]);
}

#[test]
fn what_some_values_reach_is_no_reason_to_warn() {
    clean(&domain(&format!(
        "  - key: k\n    value: a*\n    {LIMIT}\n  - key: k\n    value: abc\n    {LIMIT}\n  - key: k\n    \
         value: '*'\n    {LIMIT}\n  - key: other\n    {LIMIT}\n  - key: k2\n    regex: ^a\n    {LIMIT}\n"
    )));
}

#[test]
fn duplicate_keys_of_which_the_last_wins() {
    let yaml = domain("  - key: a\n    key: b\n    rate_limit: {unit: day, requests_per_unit: 1}\n");
    assert_says(
        &warnings(&yaml),
        &["a.yaml:4: warning: descriptors[0]: duplicate of `key` on line 3; this one wins"],
    );
    assert!(rule(&loads(&yaml), &[("b", "")]).is_some());
}

#[test]
fn documents_after_the_first() {
    assert_says(&warnings("domain: d\n---\ndomain: e\n"), &["a.yaml:2: warning: only the first document"]);
}

#[test]
fn ranges_that_say_more_than_they_mean() {
    let text = warnings(&domain(&format!("  - key: ip\n    cidr: 10.1.2.3/8\n    {LIMIT}\n")));
    assert_says(&text, &["a.yaml:4: warning: descriptors[0].cidr: means 10.0.0.0/8"]);
    let text = warnings(&domain(&format!("  - key: ip\n    cidr: ::ffff:10.0.0.0/104\n    {LIMIT}\n")));
    assert_says(&text, &["cidr: never matches"]);
}

#[test]
fn files_that_are_not_loaded() {
    let files = [("a.yaml", "domain: d\n"), ("README.md", "hello"), (".hidden", "x"), ("sub/a.yaml.bak", "")];
    let loaded = load_all(&files, Options::default()).unwrap();
    assert_eq!(
        loaded.warnings.to_string(),
        "README.md: warning: ignored: only files that end in .yaml or .yml are loaded\n\
         sub/a.yaml.bak: warning: ignored: only files that end in .yaml or .yml are loaded"
    );
}

#[test]
fn texts_that_never_match_as_meant() {
    let at = |line: &str| warnings(&domain(&format!("  - key: k\n    {line}\n    {LIMIT}\n")));
    assert_eq!(
        at("value: 10.0.0.0/8"),
        "a.yaml:4: warning: descriptors[0].value: is a range of addresses, but is compared as text; expected \
         `cidr`"
    );
    for (line, says) in [
        ("value: ^/api/.*$", "a.yaml:4: warning: descriptors[0].value: is a regular expression"),
        ("value: ^/api/.*$", "expected `regex`"),
        ("value: '{{ .Values.path }}'", "a.yaml:4: warning: descriptors[0].value: is an unexpanded template"),
        ("value: 'GET '", "descriptors[0].value: has leading or trailing whitespace"),
        ("value: |\n      GET", "descriptors[0].value: has leading or trailing whitespace"),
        ("regex: |\n      ^GET$", "descriptors[0].regex: has a line break at an end"),
    ] {
        let found = at(line);
        assert!(found.contains(says), "{line}: {found}");
    }
    let keys = domain(&format!("  - key: 'k '\n    {LIMIT}\n  - key: ${{KEY}}\n    {LIMIT}\n"));
    for (yaml, says) in [
        (keys.clone(), "a.yaml:3: warning: descriptors[0].key: has leading or trailing whitespace"),
        (keys, "descriptors[1].key: is an unexpanded template"),
        ("domain: 'd '\n".to_owned(), "a.yaml:1: warning: domain: has leading or trailing whitespace"),
        ("domain: '{{ .Release.Name }}'\n".to_owned(), "domain: is an unexpanded template"),
    ] {
        assert_says(&warnings(&yaml), &[says]);
    }
    clean(&domain(&format!("  - key: masked_remote_address\n    value: 10.0.0.0/8\n    {LIMIT}\n")));
}

#[test]
fn descriptors_beyond_the_bounds_of_requests() {
    let bounds = RequestBounds { max_descriptors: 2, max_entries: 2, ..RequestBounds::default() };
    let report = |strict, yaml: &str| {
        let loaded = load_all(&[("a.yaml", yaml)], Options { bounds, strict, ..Options::default() });
        loaded.map_or_else(|error| error.to_string(), |loaded| loaded.warnings.to_string())
    };
    let deep = "  - key: a\n    descriptors:\n    - key: b\n      descriptors:\n      - key: c\n        ";
    assert_eq!(
        report(false, &domain(&format!("{deep}{LIMIT}\n"))),
        "a.yaml:7: warning: descriptors[0].descriptors[0].descriptors: never match: requests with more than 2 entries in a \
         descriptor are refused"
    );
    assert_eq!(report(false, &domain(&format!("  - key: a\n    descriptors: [{{key: b, {LIMIT}}}]\n"))), "");
    let wide = |count: usize| {
        domain(&(0..count).map(|key| format!("  - {{key: k{key}, {LIMIT}}}\n")).collect::<String>())
    };
    assert_eq!(report(false, &wide(2)), "");
    for strict in [false, true] {
        assert_says(
            &report(strict, &wide(3)),
            &["a.yaml:5: warning: descriptors: have more than 2 keys", "is refused"],
        );
    }
    let values = "  - {key: k, value: a}\n  - {key: k, value: b}\n  - {key: k, value: c}\n";
    assert_eq!(report(false, &domain(values)), "");
}
