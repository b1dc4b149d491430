//! Charges beyond the limit: `overdraft`, `max_debt` and `carry`.

use tollgate_core::{SyncMode, algorithm::Algorithm};

use super::*;

const QUOTA: &str = "unit: minute, requests_per_unit: 5";

fn with(defaults: &str, limit: &str) -> String {
    super::with(defaults, &format!("{QUOTA}, {limit}"))
}

/// Whether the limit has an overdraft, and its bound.
fn overdraft_of(defaults: &str, limit: &str) -> (bool, Option<u64>) {
    let rule = rule_of(&with(defaults, limit));
    (rule.overdraft, limit_of(&rule).1.max_debt())
}

#[test]
fn an_overdraft_is_stated_or_from_the_defaults() {
    for (defaults, limit, found) in [
        ("", "algorithm: sliding_window", (false, None)),
        ("", "algorithm: sliding_window, overdraft: true", (true, None)),
        ("overdraft: true", "algorithm: sliding_window_log", (true, None)),
        ("overdraft: true", "overdraft: false", (false, None)),
        ("overdraft: true, carry: true", "name: a", (true, Some(5))),
        ("overdraft: true, carry: true", "carry: false", (true, None)),
        ("overdraft: true, carry: true, max_debt: 9", "algorithm: token_bucket", (true, Some(9))),
        ("max_debt: 9", "overdraft: true", (true, None)),
        ("", "overdraft: true, carry: true, max_debt: 7", (true, Some(7))),
        ("", "algorithm: token_bucket, overdraft: true", (true, Some(5))),
        ("", "algorithm: token_bucket, overdraft: true, max_debt: 70", (true, Some(70))),
    ] {
        assert_eq!(overdraft_of(defaults, limit), found, "{defaults}; {limit}");
    }
}

#[test]
fn a_carry_is_a_flag_or_states_debt_and_a_share_of_unused_hits() {
    for (limit, found) in [
        ("overdraft: true, carry: {debt: true}", (Some(5), 0)),
        ("overdraft: true, carry: {debt: true, unused: 20%}", (Some(5), 20)),
        ("carry: {unused: 0.5}", (None, 50)),
        ("carry: {debt: false}", (None, 0)),
        ("carry: {}", (None, 0)),
    ] {
        let (_, policy) = limit_of(&rule_of(&with("", limit)));
        assert_eq!((policy.max_debt(), policy.unused_percent()), found, "{limit}");
    }
    for (limit, problem) in [
        ("carry: {debt: true}", "carry: has no effect without an overdraft; expected `overdraft: true`"),
        ("carry: {unused: 120%}", "carry.unused: expected a part such as 0.8 or 80%, found the text"),
        ("carry: {unused: 0.5%}", "carry.unused: expected a whole percentage such as 20%"),
        ("carry: {unusd: 5%}", "carry.unusd"),
        ("algorithm: token_bucket, carry: {unused: 5%}", "carry: is not a key of token_bucket"),
        ("overdraft: true, max_debt: 6, carry: {debt: true, unused: 5%}", "max_debt: is more than the limit"),
        ("carry: {unused: 5%}, ban: {}", "contradicts `carry` of unused hits"),
    ] {
        assert_says(&errors(&with("", limit)), &["a.yaml:5: descriptors[0].rate_limit.", problem]);
    }
}

#[test]
fn defaults_give_concurrency_limits_no_overdraft() {
    let yaml = super::with("overdraft: true", "algorithm: concurrency, requests_per_unit: 5");
    assert!(!rule_of(&yaml).overdraft);
}

#[test]
fn keys_of_overdrafts_in_the_wrong_place_are_rejected() {
    for (limit, problem) in [
        ("max_debt: 5", "max_debt: has no effect here; expected `overdraft: true`"),
        ("overdraft: true, max_debt: 5", "max_debt: has no effect here"),
        ("algorithm: sliding_window, overdraft: true, max_debt: 5", "max_debt: has no effect here"),
        ("algorithm: token_bucket, overdraft: true, max_debt: 0", "max_debt: is 0, so no charge counts"),
        ("carry: true", "carry: has no effect without an overdraft; expected `overdraft: true`"),
        (
            "algorithm: token_bucket, overdraft: true, carry: true",
            "carry: is not a key of token_bucket; expected `algorithm: fixed_window`",
        ),
        (
            "algorithm: token_bucket, overdraft: true, max_debt: 4000000000",
            "max_debt: this debt refills too slowly; expected a max_debt that refills within 2.8 years",
        ),
    ] {
        assert_says(&errors(&with("", limit)), &["a.yaml:5: descriptors[0].rate_limit.", problem]);
    }
    let concurrency = super::with("", "algorithm: concurrency, requests_per_unit: 5, overdraft: true");
    assert_says(&errors(&concurrency), &["rate_limit.overdraft: a concurrency limit has no overdraft"]);
}

#[test]
fn an_overdraft_is_neither_leased_nor_spaced() {
    let text = warnings(&with("", "overdraft: true, sync: leased"));
    assert_says(&text, &["rate_limit.sync: has no effect beside `overdraft: true`"]);
    let text = warnings(&with("", "overdraft: true, sync: auto"));
    assert_says(&text, &["rate_limit.sync: works as `strict` beside `overdraft: true`"]);
    assert_eq!(rule_of(&with("sync: leased", "overdraft: true")).sync, SyncMode::Strict);
    let text = warnings(&with("", "algorithm: sliding_window_log, overdraft: true, min_interval: 1s"));
    assert_says(&text, &["rate_limit.min_interval: has no effect beside `overdraft: true`"]);
}

#[test]
fn limits_that_are_likely_charged_after_the_response_need_a_choice() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.holds_permits()) {
        let limit = format!("name: llm_tokens, algorithm: {}", algorithm.name());
        let text = warnings(&with("", &limit));
        assert_says(&text, &["a.yaml:4: warning: descriptors[0].rate_limit: counts `tokens`"]);
        for choice in ["true", "false"] {
            clean(&with("", &format!("{limit}, overdraft: {choice}")));
            clean(&with(&format!("overdraft: {choice}"), &limit));
        }
    }
    let keyed = domain(&format!("  - key: k\n    value: Cost\n    {LIMIT}\n"));
    assert_says(&warnings(&keyed), &["counts `cost`"]);
    // Not a word, but part of one.
    clean(&domain(&format!("  - key: costume\n    {LIMIT}\n")));
}
