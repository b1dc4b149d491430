//! Configurations that envoyproxy/ratelimit accepts, and their rules.

use std::time::Duration;

use tollgate_core::algorithm::Algorithm;
use tollgate_core::quota::{Unit, Window};

use super::*;
use crate::Value;

#[test]
fn a_tree_of_limits_is_matched_level_by_level() {
    let loaded = clean(&domain(
        "  - key: a\n    value: x\n    rate_limit: {unit: Minute, requests_per_unit: 7, name: outer}\n    \
         descriptors:\n      - key: b\n        rate_limit: {unit: week, requests_per_unit: 8}\n        \
         shadow_mode: yes\n        quota_mode: on\n        detailed_metric: true\n        \
         value_to_metric: true\n        metadata: {num: 1, t: [1.5, ~, on, \"x\"], 7: a, yes: {~: b}}\n",
    ));
    let outer = rule(&loaded, &[("a", "x")]).unwrap();
    let (quota, policy) = limit_of(&outer);
    assert_eq!(quota, Quota { limit: 7, window: Window::of(Unit::Minute) });
    assert_eq!(policy.algorithm(), Algorithm::FixedWindow);
    assert_eq!(
        (&*outer.name, outer.segments[0].value, &*outer.segments[0].stated),
        ("outer", Value::Stated, "a_x")
    );
    assert_eq!(outer.origin, ("a.yaml".into(), 3));
    assert!(!outer.shadow_mode && outer.metadata.is_none());

    let inner = rule(&loaded, &[("a", "x"), ("b", "any")]).unwrap();
    assert!(inner.shadow_mode && inner.quota_mode && inner.detailed_metric);
    assert_eq!(inner.segments[1].value, Value::Open);
    assert!(inner.segments[1].value_to_metric && !inner.segments[0].value_to_metric);
    assert_eq!(
        serde_json::to_string(inner.metadata.as_ref().unwrap()).unwrap(),
        r#"{"7":"a","num":1,"t":[1.5,null,true,"x"],"true":{"<nil>":"b"}}"#
    );
    assert_eq!(inner.path(), "a_x.b");
    assert!(rule(&loaded, &[("b", "any")]).is_none());
}

#[test]
fn scalars_keep_their_source_as_texts() {
    for value in ["123", "0x1F", "on", "yes", "true", "1.2.3.4", "2001-12-14", "12:30"] {
        let loaded = clean(&domain(&format!(
            "  - key: k\n    value: {value}\n    rate_limit: {{unit: day, requests_per_unit: 1}}\n"
        )));
        assert!(rule(&loaded, &[("k", value)]).is_some(), "{value}");
    }
    let loaded = clean(&domain(
        "  - key: k\n    value: '1.5'\n    rate_limit: {unit: day, requests_per_unit: 0x10}\n",
    ));
    assert_eq!(limit_of(&rule(&loaded, &[("k", "1.5")]).unwrap()).0.limit, 16);
}

#[test]
fn nothing_is_as_good_as_absent() {
    clean("domain: d\n");
    clean("domain: d\ndescriptors:\n");
    clean("domain: d\ndescriptors: []\n");
    let loaded = clean(&domain(
        "  - key: k\n    value:\n    descriptors: ~\n    metadata: null\n    shadow_mode: ~\n  - key: l\n    \
         rate_limit: ~\n",
    ));
    assert!(rule(&loaded, &[("k", "x")]).is_none());
}

#[test]
fn an_unlimited_rule_may_have_an_invalid_unit_and_a_number() {
    let loaded =
        loads(&domain("  - key: k\n    rate_limit: {unlimited: true, unit: none, requests_per_unit: 5}\n"));
    assert_eq!(rule(&loaded, &[("k", "x")]).unwrap().limit, Limit::Unlimited);
    clean(&domain("  - key: k\n    rate_limit: {unlimited: true}\n"));
}

#[test]
fn a_limit_of_zero_two_limits_of_one_name_and_replacing_what_is_not_there_are_fine() {
    let loaded = loads(&domain(
        "  - key: a\n    rate_limit: {unit: day, requests_per_unit: 0, name: same}\n  - key: b\n    \
         rate_limit: {unit: day, requests_per_unit: 1, name: same, replaces: [{name: other}]}\n",
    ));
    assert_eq!(*rule(&loaded, &[("b", "x")]).unwrap().replaces, [Box::<str>::from("other")]);
}

#[test]
fn wildcards_stand_in_values_and_in_keys() {
    let loaded = clean(&domain(&format!(
        "  - key: path\n    value: /v1/*\n    {LIMIT}\n  - key: path\n    value: /v2/*\n    \
         share_threshold: true\n    {LIMIT}\n  - key: foo*\n    {LIMIT}\n"
    )));
    let open = rule(&loaded, &[("path", "/v1/x")]).unwrap();
    assert_eq!((open.segments[0].value, &*open.segments[0].stated), (Value::Open, "path_/v1/*"));
    let shared = rule(&loaded, &[("path", "/v2/x")]).unwrap();
    assert_eq!((shared.segments[0].value, &*shared.segments[0].stated), (Value::Shared, "path_/v2/*"));
    let in_key = rule(&loaded, &[("foobar", "x")]).unwrap();
    assert_eq!((in_key.segments[0].value, &*in_key.segments[0].stated), (Value::Open, "foo*"));
}

#[test]
fn merged_domains_join_their_first_levels_in_the_order_of_files() {
    let first = domain(&format!("  - key: k\n    value: a*\n    {LIMIT}\n"));
    let second = domain(&format!("  - key: k\n    value: '*b'\n    {LIMIT}\n"));
    let options = Options { merge_domains: true, ..Options::default() };
    // The order of names counts, not the one in which they were written.
    let loaded = load_all(&[("2.yaml", &second), ("1.yaml", &first)], options).unwrap();
    assert_eq!(rule(&loaded, &[("k", "ab")]).unwrap().path(), "k_a*");
    assert_eq!(loaded.rules.rules().count(), 2);

    let text = load_all(&[("1.yaml", &first), ("2.yaml", &first)], options).unwrap_err().to_string();
    assert_says(&text, &["2.yaml:3: descriptors[0]: `d.k_a*` is a duplicate of 1.yaml:3"]);
}

#[test]
fn rules_that_differ_in_open_keys_have_ids_of_their_own() {
    let loaded = clean(&domain(&format!("  - key: a\n    {LIMIT}\n  - key: b\n    {LIMIT}\n")));
    let ids: Vec<_> = loaded.rules.rules().map(|rule| rule.record_id()).collect();
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn twenty_thousand_descriptors_load_in_a_moment() {
    let mut yaml = "domain: d\ndescriptors:\n".to_owned();
    for client in 0..20_000 {
        yaml.push_str(&format!(
            "- {{key: client, value: c{client}, rate_limit: {{unit: minute, requests_per_unit: 5}}}}\n"
        ));
    }
    let start = std::time::Instant::now();
    assert_eq!(clean(&yaml).rules.rules().count(), 20_000);
    assert!(start.elapsed() < Duration::from_secs(60));
}
