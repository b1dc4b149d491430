//! Reservations: `reserve`.

use std::num::NonZeroU32;

use tollgate_core::algorithm::{Reserve, Unsettled};

use super::*;
use crate::config::override_rule;

fn with(limit: &str) -> String {
    super::with("", &format!("unit: day, requests_per_unit: 2000, {limit}"))
}

fn reserve_of(yaml: &str) -> Option<Reserve> {
    limit_of(&rule_of(yaml)).1.reserve_terms()
}

#[test]
fn terms_are_stated_or_the_usual_ones() {
    let terms = |ttl, unsettled, add, cap| Reserve {
        ttl: NonZeroU32::new(ttl).unwrap(),
        unsettled,
        add,
        cap: NonZeroU32::new(cap),
    };
    for (stated, expected) in [
        ("reserve: {}", terms(600, Unsettled::Charge, 0, 0)),
        ("reserve: {ttl: 2s, unsettled: release}", terms(2, Unsettled::Release, 0, 0)),
        ("reserve: {ttl: 7d, add: 500, cap: 25%}", terms(604_800, Unsettled::Charge, 500, 2_500)),
        ("reserve: {unsettled: charge, cap: 0.0001}", terms(600, Unsettled::Charge, 0, 1)),
    ] {
        assert_eq!(reserve_of(&with(stated)), Some(expected), "{stated}");
    }
    assert_eq!(reserve_of(&with("name: a")), None);
}

#[test]
fn an_inheriting_limit_takes_the_terms_of_its_algorithm() {
    let nested = |own: &str| {
        format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{unit: day, requests_per_unit: 9, reserve: {{ttl: 3s}}}}\n    \
             descriptors:\n      - key: b\n        rate_limit: {{inherit: true, {own}}}\n"
        )
    };
    let reserve_below = |yaml: &str| {
        let rule = rule(&clean(yaml), &[("k", "x"), ("b", "y")]).unwrap();
        limit_of(&rule).1.reserve_terms().map(|reserve| reserve.ttl.get())
    };
    assert_eq!(reserve_below(&nested("requests_per_unit: 5")), Some(3));
    assert_eq!(reserve_below(&nested("algorithm: token_bucket")), None);
}

#[test]
fn wrong_terms_are_rejected() {
    for (limit, problem) in [
        ("{ttl: 1s}", "reserve.ttl: `1s` is out of range; expected 2 seconds to 7 days"),
        ("{ttl: 8d}", "reserve.ttl: `8d` is out of range"),
        ("{ttl: soon}", "reserve.ttl: `soon` is not a duration"),
        ("{unsettled: keep}", "reserve.unsettled: `keep` is not an effect; expected one of charge, release"),
        ("{cap: 0}", "reserve.cap: is out of range; expected a share of the limit from 0.01% to 100%"),
        ("{lease: 1}", "reserve.lease: "),
        (
            "{}, algorithm: token_bucket",
            "reserve: is not a key of token_bucket; expected `algorithm: fixed_window`",
        ),
        ("{}, overdraft: true", "reserve: contradicts `overdraft: true`"),
        ("{}, carry: {unused: 20%}", "reserve: contradicts `carry` of unused hits"),
        ("{}, ban: {threshold: 5}", "ban: contradicts `reserve`"),
        ("{}, timezone: Europe/Berlin", "reserve: cannot be combined with windows of a calendar"),
        ("{}, scope: global", "reserve: contradicts `scope: global`"),
        ("{}, scope: primary", "reserve: contradicts `scope: primary`"),
        ("{}, sync: leased", "sync: a limit with `reserve` cannot be leased; expected `strict`"),
        (
            "{}, candidate: {unit: day, requests_per_unit: 5}",
            "candidate: cannot be compared: hits are reserved",
        ),
    ] {
        let text = errors(&with(&format!("reserve: {limit}")));
        assert_says(&text, &["a.yaml:5: ", "descriptors[0].rate_limit.", problem]);
    }
}

#[test]
fn defaults_and_overrides_contradict_reservations_too() {
    let of_defaults = |defaults: &str, limit: &str| {
        super::with(defaults, &format!("unit: day, requests_per_unit: 9, {limit}"))
    };
    for (defaults, limit, problem) in [
        ("overdraft: true", "reserve: {}", "contradicts `overdraft: true` of `defaults` at a.yaml:2: "),
        (
            "carry: {unused: 20%}",
            "reserve: {}",
            "contradicts `carry` of unused hits of `defaults` at a.yaml:2: ",
        ),
        ("overdraft: false", "overdraft: true, reserve: {}", "contradicts `overdraft: true`: "),
    ] {
        let place = ["a.yaml:5: ", "descriptors[0].rate_limit.reserve: ", problem];
        assert_says(&errors(&of_defaults(defaults, limit)), &place);
    }
    // Stated to be otherwise.
    for (defaults, limit) in [
        ("overdraft: true", "overdraft: false, reserve: {}"),
        ("carry: {unused: 20%}", "carry: false, reserve: {}"),
        ("max_debt: 5", "reserve: {}"),
    ] {
        clean(&of_defaults(defaults, limit));
    }
    let reserves = rule_of(&with("reserve: {}"));
    for (stated, problem) in [
        ("overdraft: true", "rate_limit.overdraft: contradicts the `reserve` of the rule: "),
        ("carry: {unused: 20%}", "rate_limit.carry: contradicts the `reserve` of the rule: "),
        ("reserve: {}, overdraft: true", "rate_limit.reserve: contradicts `overdraft: true`: "),
        ("algorithm: token_bucket", "changes from or to `reserve`"),
    ] {
        let refused = override_rule("d", &reserves, &format!("{{{stated}}}")).expect_err(stated);
        assert!(refused.contains(problem), "{refused}");
    }
    let overridden = override_rule("d", &reserves, "requests_per_unit: 7").expect("valid");
    let (_, policy) = limit_of(&overridden);
    assert!(policy.is_budget() && policy.limit() == 7, "{policy:?}");
}

#[test]
fn a_limit_with_reservations_may_count_tokens_and_be_as_large_in_an_outage_as_others() {
    clean(&with("name: llm-tokens, reserve: {}"));
    let limit = "unit: day, requests_per_unit: 50000000, degraded_limit: 20000000, reserve: {}";
    clean(&super::with("", limit));
}
