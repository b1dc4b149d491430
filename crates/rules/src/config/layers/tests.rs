//! Limits that inherit, and overlays over files.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::*;
use crate::config::{LoadError, Loaded, Options, load_files};
use crate::{Rule, Rules};

/// Rules in the shape of those that Envoy Gateway pushes.
const GENERATED: &str = "
domain: eg/shop/http
descriptors:
- key: httproute/shop/checkout
  value: httproute/shop/checkout
  descriptors:
  - key: rule-0-match-0
    value: rule-0-match-0
    rate_limit: {unit: minute, requests_per_unit: 100}
  - key: shop/limits/rule/1
    value: shop/limits/rule/1
    descriptors:
    - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 5}, shadow_mode: true}
    - {key: free, rate_limit: {unlimited: true}}
";

fn load(rules: &str, overlay: Option<&'static OverlaySlot>) -> Result<Loaded, String> {
    let file = ("rules.yaml".to_owned(), rules.as_bytes().to_vec());
    load_files([file], Options { overlay, ..Options::default() }).map_err(|error| error.to_string())
}

/// Files of an overlay.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        fs::write(directory.path().join(name), text).expect("written");
    }
    directory
}

fn slot(directory: &Path) -> &'static OverlaySlot {
    let slot = OverlaySlot::leaked(directory.to_owned());
    slot.load(tollgate_directory::read(directory).expect("readable")).expect("valid");
    slot
}

fn checked(directory: &Path) -> Result<Overlay, LoadError> {
    OverlaySlot::leaked(directory.to_owned()).check(tollgate_directory::read(directory)?)
}

/// Rules with one file laid over them.
fn over(rules: &str, overlay: &str) -> Result<Loaded, String> {
    let files = directory(&[("over.yaml", overlay)]);
    let prefix = format!("{}/", files.path().display());
    load(rules, Some(slot(files.path()))).map_err(|error| error.replace(&prefix, ""))
}

fn rule<'r>(rules: &'r Rules, path: &str) -> &'r Rule {
    rules.rules().find(|rule| rule.path() == path).expect("is there")
}

fn ending_with<'r>(rules: &'r Rules, path: &str) -> &'r Rule {
    rules.rules().find(|rule| rule.path().ends_with(path)).expect("is there")
}

/// The limit without its derived values.
fn shown(rules: &Rules, path: &str) -> String {
    format!("{:?}", rule(rules, path).limit)
}

/// The limit of a rule, as stated by itself.
fn alone(limit: &str) -> String {
    let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]");
    shown(&load(&text, None).expect("valid").rules, "k")
}

fn nested(above: &str, below: &str) -> String {
    format!(
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{{above}}}\n  descriptors:\n  - key: b\n    rate_limit: {{{below}}}\n"
    )
}

fn inherited(above: &str, below: &str) -> String {
    let loaded = load(&nested(above, below), None).expect("valid");
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    shown(&loaded.rules, "a.b")
}

#[test]
fn a_limit_inherits_what_it_omits() {
    let bucket = "algorithm: token_bucket, window: 5m, requests_per_unit: 100, burst: 200";
    let minutes = "unit: minute, unit_multiplier: 5, requests_per_unit: 9";
    let leased = "algorithm: token_bucket, unit: minute, requests_per_unit: 100, burst: 200, sync: leased";
    for (above, below, expected) in [
        (bucket, "", bucket),
        (
            bucket,
            "requests_per_unit: 150",
            "algorithm: token_bucket, window: 5m, requests_per_unit: 150, burst: 200",
        ),
        (bucket, "unit: hour", "algorithm: token_bucket, unit: hour, requests_per_unit: 100, burst: 200"),
        (minutes, "unit_multiplier: 2", "unit: minute, unit_multiplier: 2, requests_per_unit: 9"),
        // Another algorithm inherits no parameters of the former.
        (leased, "algorithm: fixed_window", "unit: minute, requests_per_unit: 100"),
        (
            leased,
            "algorithm: concurrency, lease_ttl: 9s",
            "algorithm: concurrency, requests_per_unit: 100, lease_ttl: 9s",
        ),
    ] {
        assert_eq!(inherited(above, &format!("inherit: true, {below}")), alone(expected), "{below}");
    }
}

#[test]
fn attributes_are_inherited_but_for_the_name() {
    let above = "unit: hour, requests_per_unit: 100, name: above, sync: leased, degraded_limit: 5, retry_after_spread: 7s, ban: {threshold: 9}";
    let loaded = load(&nested(above, "inherit: true, requests_per_unit: 90"), None).expect("valid");
    let (above, below) = (rule(&loaded.rules, "a"), rule(&loaded.rules, "a.b"));
    let attributes =
        |rule: &Rule| (rule.sync, rule.on_store_error, rule.degraded_limit, rule.retry_after_spread);
    assert_eq!(attributes(above), attributes(below));
    assert_eq!(above.ban.map(|ban| ban.threshold), below.ban.map(|ban| ban.threshold));
    assert_eq!((&*above.name, &*below.name), ("above", ""));
}

#[test]
fn the_nearest_limit_above_is_inherited_after_its_own_inheritance() {
    let text = "
domain: d
defaults: {algorithm: sliding_window}
descriptors:
- key: a
  rate_limit: {unit: hour, requests_per_unit: 1, degraded_limit: 1}
  descriptors:
  - key: b
    rate_limit: {inherit: true, requests_per_unit: 2}
    descriptors:
    - key: without
      descriptors:
      - {key: c, rate_limit: {inherit: true, window: 30s}}
";
    let loaded = load(text, None).expect("valid");
    assert_eq!(
        shown(&loaded.rules, "a.b.without.c"),
        alone("algorithm: sliding_window, window: 30s, requests_per_unit: 2")
    );
    let stated = rule(&loaded.rules, "a.b.without.c").stated.as_ref().expect("inherits");
    let stated: Vec<_> = stated.iter().map(|value| (value.key, &*value.file, value.line)).collect();
    let expected = [
        ("window", "rules.yaml", 13),
        ("requests_per_unit", "rules.yaml", 9),
        ("degraded_limit", "rules.yaml", 6),
    ];
    assert_eq!(stated, expected);
    assert!(rule(&loaded.rules, "a").stated.is_none());
}

#[test]
fn a_limit_inherits_from_the_one_of_a_name() {
    let text = |inherit: &str| {
        format!(
            "domain: d
descriptors:
- key: c
  rate_limit: {{inherit: {inherit}, requests_per_unit: 5}}
- key: a
  descriptors:
  - key: b
    rate_limit: {{name: pro, algorithm: token_bucket, unit: hour, requests_per_unit: 9, burst: 4}}
  - {{key: e, rate_limit: {{name: twice, unit: hour, requests_per_unit: 9}}}}
  - {{key: f, rate_limit: {{name: twice, unit: day, requests_per_unit: 9}}}}
  - {{key: g, rate_limit: {{name: chain, inherit: pro}}}}
"
        )
    };
    let loaded = load(&text("pro"), None).expect("valid");
    assert_eq!(
        shown(&loaded.rules, "c"),
        alone("algorithm: token_bucket, unit: hour, requests_per_unit: 5, burst: 4")
    );
    assert_eq!(&*rule(&loaded.rules, "c").name, "");
    let stated = rule(&loaded.rules, "c").stated.as_ref().expect("inherits");
    let line = |key: &str| stated.iter().find(|stated| stated.key == key).map(|stated| stated.line);
    assert_eq!((line("requests_per_unit"), line("burst")), (Some(4), Some(8)));
    for (inherit, expected) in [
        ("prow", "no limit of the file has the name `prow`; expected true or a name, such as `pro`"),
        ("twice", "`twice` is the name of several limits of the file"),
        ("chain", "`chain` inherits too; expected a limit that states its keys"),
    ] {
        let error = load(&text(inherit), None).expect_err("invalid").to_string();
        assert!(error.contains("rate_limit.inherit") && error.contains(expected), "{error}");
    }
}

#[test]
fn without_a_limit_above_there_is_nothing_to_inherit() {
    let text = "domain: d\ndescriptors:\n- key: a\n  rate_limit: {inherit: true, unit: hour, requests_per_unit: 1}\n";
    let error = load(text, None).expect_err("nothing above");
    let expected = "rules.yaml:4: descriptors[0].rate_limit.inherit: has no limit to inherit; expected a `rate_limit` \
                    in a descriptor that contains this one";
    assert_eq!(error, expected);
    let invalid =
        load(&nested("unit: hour, requests_per_unit: x", "inherit: true"), None).expect_err("invalid");
    assert_eq!(invalid.lines().count(), 1, "{invalid}");
}

#[test]
fn an_overlay_changes_the_limits_that_its_patterns_match() {
    let overlay = "
domain: eg/*/http
descriptors:
- key: httproute/shop/*
  descriptors:
  - key: rule-*-match-0
    value: rule-*
    rate_limit: {algorithm: token_bucket, window: 5m, burst: 250}
- key: '**'
  descriptors:
  - {key: remote_address, shadow_mode: false, rate_limit: {requests_per_unit: 7, on_store_error: deny}}
";
    let loaded = over(GENERATED, overlay).expect("valid");
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let path = "httproute/shop/checkout_httproute/shop/checkout.rule-0-match-0_rule-0-match-0";
    assert_eq!(
        shown(&loaded.rules, path),
        alone("algorithm: token_bucket, window: 5m, requests_per_unit: 100, burst: 250")
    );
    let address = ending_with(&loaded.rules, "remote_address");
    assert_eq!(format!("{:?}", address.limit), alone("unit: second, requests_per_unit: 7"));
    assert!(!address.shadow_mode && address.on_store_error.is_some());
    let laid = loaded.overlay.expect("laid");
    assert_eq!((laid.patterns, laid.unmatched), (2, 0));
}

#[test]
fn explanations_have_the_places_of_laid_keys() {
    let overlay = "domain: '*'\ndescriptors:\n- key: '**'\n  rate_limit:\n    on_store_error: deny\n";
    let loaded = over(GENERATED, overlay).expect("valid");
    let address = ending_with(&loaded.rules, "remote_address");
    let stated = address.stated.as_ref().expect("an overlay changed it");
    let places: Vec<_> =
        stated.iter().map(|value| (value.key, value.file.ends_with("/over.yaml"), value.line)).collect();
    let expected = [
        ("unit", false, 13),
        ("requests_per_unit", false, 13),
        ("on_store_error", true, 5),
        ("shadow_mode", false, 13),
    ];
    assert_eq!(places, expected);
    assert_eq!(address.origin, ("rules.yaml".into(), 13));
}

#[test]
fn keys_of_a_whole_domain_are_laid_too() {
    let overlay = "
domain: '*'
atomic: true
defaults: {algorithm: sliding_window, on_store_error: deny}
";
    let loaded = over(GENERATED, overlay).expect("valid");
    let domain = loaded.rules.domain("eg/shop/http").expect("is there");
    assert_eq!(domain.charging, tollgate_core::algorithm::Charging::AllOrNone);
    assert!(domain.root.rules().all(|rule| rule.algorithm().is_none_or(|it| it.name() == "sliding_window")));
}

#[test]
fn unlimited_rules_are_left_alone_unless_the_overlay_limits_them() {
    let all = |keys: &str| format!("domain: '*'\ndescriptors: [{{key: '**', rate_limit: {{{keys}}}}}]");
    for (keys, is_free) in [
        ("algorithm: token_bucket", true),
        ("requests_per_unit: 3", true),
        ("unlimited: false, requests_per_unit: 3, unit: day", false),
    ] {
        let loaded = over(GENERATED, &all(keys)).expect("valid");
        let free = ending_with(&loaded.rules, "free");
        assert_eq!(free.limit == crate::Limit::Unlimited, is_free, "{keys}");
    }
    let unlimited = over(GENERATED, &all("unlimited: true")).expect("valid");
    assert!(unlimited.rules.rules().all(|rule| rule.limit == crate::Limit::Unlimited));
}

#[test]
fn a_pattern_that_matches_nothing_is_a_warning_at_its_line_even_if_strict() {
    let overlay = "
domain: eg/shop/*
descriptors:
- {key: nothing, rate_limit: {burst: 1}}
- key: httproute/shop/*
  # The descriptor has no limit.
  rate_limit: {algorithm: token_bucket}
";
    let files = directory(&[
        ("a.yaml", overlay),
        ("b.yaml", "domain: eg/none\ndescriptors: [{key: a, shadow_mode: true}]"),
    ]);
    let options = Options { overlay: Some(slot(files.path())), strict: true, ..Options::default() };
    let file = ("rules.yaml".to_owned(), GENERATED.as_bytes().to_vec());
    let loaded = load_files([file], options).expect("valid");
    let prefix = format!("{}/", files.path().display());
    let warnings = loaded.warnings.to_string().replace(&prefix, "");
    let expected = "\
a.yaml:4: warning: descriptors[0]: matches no limit of the rules, so its keys have no effect
a.yaml:5: warning: descriptors[1]: matches no limit of the rules, so its keys have no effect
b.yaml:1: warning: domain: `eg/none` matches no domain of the rules";
    assert_eq!(warnings, expected);
    assert_eq!(loaded.overlay.map(|laid| (laid.patterns, laid.unmatched)), Some((3, 3)));
}

#[test]
fn problems_of_an_overlay_have_its_file_and_line() {
    let overlay = "
domain: '*'
descriptors:
- key: '**'
  rate_limit:
    algorithm: token_bucket
    burst: 0
";
    let error = over(GENERATED, overlay).expect_err("invalid");
    assert!(error.lines().all(|line| line.starts_with("over.yaml:7: descriptors[0]")), "{error}");
    assert!(error.lines().next().is_some_and(|line| line.contains(".rate_limit.burst: ")), "{error}");
}

#[test]
fn an_overlay_that_is_invalid_by_itself_is_refused() {
    for (text, problem) in [
        (
            "descriptors: []",
            "over.yaml: domain: is missing; expected the domain of the rules, or a pattern such as `*`",
        ),
        ("domain: '*'\ndescriptors: [{value: v}]", "over.yaml:2: descriptors[0]: has no `key`; expected"),
        (
            "domain: '*'\ndescriptors: [{key: k, regex: v}]",
            "over.yaml:2: descriptors[0].regex: cannot be laid over rules; ",
        ),
        (
            "domain: '*'\ndescriptors: [{key: k, rate_limit: {brust: 1}}]",
            "over.yaml:2: descriptors[0].rate_limit.brust: unknown key",
        ),
    ] {
        let files = directory(&[("over.yaml", text)]);
        let error = checked(files.path()).expect_err("invalid").to_string();
        let error = error.replace(&format!("{}/", files.path().display()), "");
        assert!(error.starts_with(problem), "{error}");
    }
    let many: String = (0..1_001).map(|number| format!("- key: k{number}\n")).collect();
    let files = directory(&[("over.yaml", &format!("domain: '*'\ndescriptors:\n{many}"))]);
    let error = checked(files.path()).expect_err("too many").to_string();
    assert!(error.ends_with("1001 descriptors; expected at most 1000"), "{error}");
    assert!(checked(directory(&[]).path()).is_ok(), "an empty directory changes nothing");
}

#[test]
fn later_patterns_and_files_have_precedence() {
    let all = |limit: u32| {
        format!("domain: '*'\ndescriptors: [{{key: '**', rate_limit: {{requests_per_unit: {limit}}}}}]")
    };
    let files = directory(&[("a.yaml", &all(1)), ("b.yaml", &all(2))]);
    let loaded = load(GENERATED, Some(slot(files.path()))).expect("valid");
    let limited = loaded.rules.rules().filter_map(|rule| match rule.limit {
        crate::Limit::Quota { quota, .. } => Some(quota.limit),
        crate::Limit::Unlimited => None,
    });
    assert!(limited.collect::<Vec<_>>().iter().all(|limit| *limit == 2));
}
