//! Keys that envoyproxy/ratelimit does not have.

use tollgate_core::algorithm::{Algorithm, Parameters};
use tollgate_core::quota::{Unit, Window};

use super::*;
use crate::{OnStoreError, Value};

/// The limit of `k`, with `defaults` for the file.
fn limit_with(defaults: &str, limit: &str) -> (Quota, Policy) {
    super::limit_of(&rule_of(&with(defaults, limit)))
}

fn limit_of(limit: &str) -> (Quota, Policy) {
    limit_with("", limit)
}

fn bucket(quota: Quota, burst: u32) -> Policy {
    let parameters = Parameters { burst: Some(burst), ..Parameters::default() };
    Policy::new(Algorithm::TokenBucket, quota, &parameters).unwrap()
}

fn limit_errors(limit: &str) -> String {
    errors(&with("", limit))
}

#[test]
fn windows_of_any_length() {
    for (limit, window) in [
        ("window: 30s", Window::new(Unit::Second, 30)),
        ("window: 5m", Window::new(Unit::Minute, 5)),
        ("window: 1h30m", Window::new(Unit::Minute, 90)),
        ("unit: minute, unit_multiplier: 15", Window::new(Unit::Minute, 15)),
    ] {
        let (quota, _) = limit_of(&format!("{limit}, requests_per_unit: 5"));
        assert_eq!(quota.window, window.unwrap(), "{limit}");
    }
    for (limit, says) in [
        ("window: 500ms", "rate_limit.window: `500ms` is not a window; expected whole seconds"),
        ("window: 30", "`30` is not a window"),
        ("window: 0s", "1 second to 730 days"),
        ("window: 731d", "1 second to 730 days"),
        ("window: 30s, unit: day", "window: contradicts `unit`"),
        ("window: 30s, unit_multiplier: 2", "window: contradicts `unit`"),
        ("unit_multiplier: 2", "unit_multiplier: has no `unit`"),
        ("unit: day, unit_multiplier: 0", "unit_multiplier: 0 × day is not a window"),
        ("unit: year, unit_multiplier: 3", "3 × year is not a window"),
    ] {
        assert_says(&limit_errors(&format!("{limit}, requests_per_unit: 5")), &[says]);
    }
}

#[test]
fn algorithms_and_their_parameters() {
    let (quota, policy) = limit_of("unit: second, requests_per_unit: 5, algorithm: token_bucket, burst: 20");
    assert_eq!(policy, bucket(quota, 20));
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::Concurrency) {
        let name = algorithm.name();
        let (quota, policy) = limit_of(&format!("unit: second, requests_per_unit: 5, algorithm: {name}"));
        assert_eq!(Policy::new(algorithm, quota, &Parameters::default()), Ok(policy));
    }
    for (limit, says) in [
        (
            "algorithm: token_buckets",
            "algorithm: `token_buckets` is not an algorithm; did you mean `token_bucket`?",
        ),
        (
            "algorithm: magic",
            "`magic` is not an algorithm; expected one of fixed_window, sliding_window, sliding_window_log, \
             token_bucket, concurrency",
        ),
        ("burst: 5", "burst: is not a key of fixed_window; expected `algorithm: token_bucket`"),
        (
            "algorithm: token_bucket, burst: 0",
            "burst: is 0, so the bucket admits no requests; expected at least 1",
        ),
        ("algorithm: token_bucket, burst: 4000000000", "rate_limit.burst: this bucket refills too slowly"),
    ] {
        assert_says(&limit_errors(&format!("unit: day, requests_per_unit: 1, {limit}")), &[says]);
    }
}

#[test]
fn an_unlimited_rule_takes_nothing_else() {
    let keys = "window: 30s, unit_multiplier: 2, algorithm: token_bucket, burst: 2, min_interval: 50ms, \
                lease_ttl: 60s, sync: leased, sync: strict, on_store_error: deny, retry_after_spread: 10s";
    for key in keys.split(", ") {
        let text = limit_errors(&format!("unlimited: true, {key}"));
        assert_says(&text, &["contradicts `unlimited: true`"]);
    }
}

#[test]
fn a_limit_says_what_happens_while_the_store_does_not_decide_or_the_defaults_do() {
    let of = |defaults: &str, stated: &str| {
        let limit = format!("unit: day, requests_per_unit: 1{stated}");
        let rules = clean(&with(defaults, &limit));
        let domain = rules.rules.domain("d").unwrap().default_on_store_error;
        (rule(&rules, &[("k", "x")]).unwrap().on_store_error, domain)
    };
    assert_eq!(of("", ""), (None, None));
    for way in OnStoreError::ALL {
        let key = format!("on_store_error: {}", way.name());
        assert_eq!(of("", &format!(", {key}")), (Some(way), None));
        assert_eq!(of(&key, ""), (Some(way), Some(way)));
    }
    let both = of("on_store_error: deny", ", on_store_error: allow");
    assert_eq!(both, (Some(OnStoreError::Allow), Some(OnStoreError::Deny)));
}

#[test]
fn an_unknown_policy_and_a_misplaced_one_are_errors() {
    assert_says(
        &limit_errors("unit: day, requests_per_unit: 1, on_store_error: permit"),
        &[
            "rate_limit.on_store_error: `permit` is not an on_store_error policy",
            "expected one of local, allow, deny, error",
        ],
    );
    let text = errors("domain: d\non_store_error: deny\n");
    assert_says(&text, &["a.yaml:2: on_store_error: does not belong to the root of a file"]);
}

#[test]
fn a_limit_states_the_spread_of_its_clients_or_the_defaults_do() {
    let of = |defaults: &str, limit: &str| {
        rule_of(&with(defaults, limit)).retry_after_spread.map(|spread| spread.as_secs())
    };
    let limit = "unit: day, requests_per_unit: 1";
    let stated = |spread: &str| of("", &format!("{limit}, retry_after_spread: {spread}"));
    assert_eq!((of("", limit), stated("1m30s"), stated("24h")), (None, Some(90), Some(86_400)));
    let default = "retry_after_spread: 10s";
    assert_eq!(of(default, limit), Some(10));
    assert_eq!(of(default, &format!("{limit}, retry_after_spread: 0s")), Some(0), "none in spite of it");
    assert_eq!(of(default, "algorithm: concurrency, requests_per_unit: 1"), None);
    assert_eq!(of(default, "unlimited: true"), None);
}

#[test]
fn a_spread_out_of_range_or_of_a_concurrency_limit_is_an_error() {
    let limit = "unit: day, requests_per_unit: 1";
    for (limit, message) in [
        (limit, "`24h1s` is out of range; expected 0 seconds to 24 hours"),
        (limit, "`500ms` is not a duration; expected whole seconds"),
        ("algorithm: concurrency, requests_per_unit: 1", "`1s` is not a key of concurrency"),
    ] {
        let spread = message.split('`').nth(1).expect("it is quoted");
        let message = message.trim_start_matches("`1s` ");
        let text = limit_errors(&format!("{limit}, retry_after_spread: {spread}"));
        assert_says(&text, &[&format!("rate_limit.retry_after_spread: {message}")]);
    }
}

#[test]
fn our_keys_in_the_wrong_place_are_errors() {
    for (root, says) in [
        ("descriptors: [{key: k, burst: 5}]", "burst: does not belong to a descriptor; it belongs to"),
        (
            "descriptors: [{key: k, rate_limit: {regex: a}}]",
            "regex: does not belong to `rate_limit`; it belongs to a descriptor",
        ),
        ("defaults: {unlimited: true}", "defaults.unlimited: does not belong to"),
        ("defaults: {name: x}", "defaults.name: does not belong to"),
    ] {
        assert_says(&errors(&format!("domain: d\n{root}\n")), &[says]);
    }
}

#[test]
fn defaults_fill_in_what_a_limit_leaves_out() {
    let five_minutes =
        "unit: minute, unit_multiplier: 5, requests_per_unit: 9, algorithm: token_bucket, burst: 11";
    let window = Window::new(Unit::Minute, 5).unwrap();
    let quota = Quota { limit: 9, window };
    assert_eq!(limit_with(five_minutes, ""), (quota, bucket(quota, 11)));
    // Unit, multiplier and window are one statement.
    let window = |limit| Ok(limit_with(five_minutes, limit).0.window);
    assert_eq!(window("unit: hour"), Ok(Window::of(Unit::Hour)));
    assert_eq!(window("window: 7s"), Window::new(Unit::Second, 7));
    assert_eq!(window("unit_multiplier: 2"), Window::new(Unit::Minute, 2));
    // A burst is for those that have one.
    assert_eq!(limit_with(five_minutes, "algorithm: fixed_window").1.algorithm(), Algorithm::FixedWindow);
    assert_eq!(limit_with("window: 7s", "requests_per_unit: 1").0.window.seconds(), 7);
}

#[test]
fn an_unlimited_rule_ignores_the_defaults() {
    let yaml = "domain: d\ndefaults: {unit: day, burst: 5}\ndescriptors: [{key: k, rate_limit: {unlimited: true}}]\n";
    assert_eq!(rule(&clean(yaml), &[("k", "x")]).unwrap().limit, Limit::Unlimited);
}

#[test]
fn mistakes_in_defaults_are_reported_where_they_stand() {
    let text = errors("domain: d\ndefaults:\n  unit: foo\n  algorithm: bar\n  burst: 0\n");
    assert_says(
        &text,
        &["a.yaml:3: defaults.unit: ", "a.yaml:4: defaults.algorithm: ", "a.yaml:5: defaults.burst: "],
    );
}

#[test]
fn the_default_algorithm_is_the_domains_too() {
    let loaded = clean("domain: d\ndefaults: {algorithm: token_bucket}\n");
    assert_eq!(loaded.rules.domain("d").unwrap().default_algorithm, Algorithm::TokenBucket);
    let options = Options { merge_domains: true, ..Options::default() };
    let files = [
        ("a.yaml", "domain: d\ndefaults: {algorithm: token_bucket}\n"),
        ("b.yaml", "domain: d\ndefaults: {algorithm: fixed_window}\n"),
    ];
    let warnings = load_all(&files, options).unwrap().warnings.to_string();
    assert_says(&warnings, &["b.yaml:2: warning: defaults.algorithm: differs", "a.yaml:2"]);
}

#[test]
fn ranges_and_expressions() {
    let loaded = clean(&domain(&format!(
        "  - key: ip\n    cidr: 10.0.0.0/8\n    {LIMIT}\n  - key: ip\n    cidr: 10.1.0.0/16\n    \
         share_threshold: true\n    {LIMIT}\n  - key: path\n    regex: ^/v[0-9]+/\n    share_threshold: true\n    \
         {LIMIT}\n  - key: path\n    {LIMIT}\n"
    )));
    let segment = |key, value| {
        let rule = rule(&loaded, &[(key, value)]).unwrap();
        (rule.path(), rule.segments[0].value)
    };
    assert_eq!(segment("ip", "10.2.0.1"), ("ip_10.0.0.0/8".to_owned(), Value::Open));
    assert_eq!(segment("ip", "10.1.0.1"), ("ip_10.1.0.0/16".to_owned(), Value::Shared));
    assert_eq!(segment("path", "/v12/x"), ("path_~^/v[0-9]+/".to_owned(), Value::Shared));
    assert_eq!(segment("path", "/x"), ("path".to_owned(), Value::Open));
}

#[test]
fn ranges_and_expressions_that_are_none() {
    for (line, says) in [
        ("cidr: 10.0.0.1", "descriptors[0].cidr: `10.0.0.1` is not an address range"),
        ("cidr: 10.0.0.0/33", "is not an address range"),
        ("cidr: ''", "is not an address range"),
        ("regex: '(a'", "regex: is not a regular expression: unclosed group"),
        ("regex: ''", "regex: is empty"),
        ("regex: '(a{1000}){1000}'", "regex: is too large"),
        ("value: a, regex: b", "regex: contradicts `value`"),
        ("regex: a, cidr: 10.0.0.0/8", "cidr: contradicts `regex`"),
    ] {
        assert_says(&errors(&format!("domain: d\ndescriptors: [{{key: k, {line}}}]\n")), &[says]);
    }
    assert_says(
        &errors("domain: d\ndescriptors: [{key: 'k*', regex: a}]\n"),
        &["cannot be combined with the wildcard `k*`"],
    );
}

#[test]
fn a_degraded_limit_is_decided_locally() {
    let stated = |defaults: &str, limit: &str| {
        let rule = rule_of(&with(defaults, limit));
        (rule.on_store_error, rule.degraded_limit)
    };
    let limit = "unit: second, requests_per_unit: 50, degraded_limit: 10";
    assert_eq!(stated("", limit), (Some(OnStoreError::Local), Some(10)));
    assert_eq!(stated("on_store_error: allow", limit), (Some(OnStoreError::Local), Some(10)));
    for (limit, says) in [
        (
            "unit: second, requests_per_unit: 50, degraded_limit: 10, on_store_error: allow",
            "degraded_limit: has no effect with `on_store_error: allow`; expected `on_store_error: local`",
        ),
        ("unlimited: true, degraded_limit: 10", "degraded_limit: contradicts `unlimited: true`"),
        (
            "requests_per_unit: 50, algorithm: concurrency, degraded_limit: 10001",
            "degraded_limit: is too large; expected a limit of at most 10000",
        ),
        ("unit: second, requests_per_unit: 50, degraded_limit: many", "degraded_limit"),
    ] {
        assert_says(&limit_errors(limit), &[says]);
    }
}
