//! Overrides of rules: parts of a `rate_limit` over the values of a rule.

use tollgate_core::{algorithm::Algorithm, quota::Unit};

use super::*;
use crate::{OnStoreError, config::override_rule};

fn rule(limit: &str) -> Arc<Rule> {
    super::rule(&loads(&with("", limit)), &[("k", "x")]).expect("stated")
}

fn overridden(limit: &str, with: &str) -> Result<Rule, String> {
    override_rule("d", &rule(limit), with)
}

fn quota(rule: &Rule) -> (u64, u32, Algorithm, Option<u64>) {
    let (quota, policy) = limit_of(rule);
    (quota.limit, quota.window.seconds(), policy.algorithm(), policy.burst())
}

#[test]
fn an_override_changes_what_it_states_and_nothing_else() {
    let stated = "unit: minute, requests_per_unit: 10, algorithm: token_bucket, burst: 5, name: n, \
                  on_store_error: deny, retry_after_spread: 3s";
    let changed = overridden(stated, r#"{"requests_per_unit": 20}"#).expect("valid");
    assert_eq!(quota(&changed), (20, 60, Algorithm::TokenBucket, Some(5)));
    assert_eq!((&*changed.name, changed.on_store_error), ("n", Some(OnStoreError::Deny)));
    assert_eq!(changed.retry_after_spread.map(|spread| spread.as_secs()), Some(3));
    assert!(changed.is_override() && changed.segments == rule(stated).segments);
}

#[test]
fn a_burst_as_large_as_the_limit_follows_it() {
    let bucket = "unit: second, requests_per_unit: 10, algorithm: token_bucket";
    let changed = overridden(bucket, r#"{"requests_per_unit": 20}"#).expect("valid");
    assert_eq!(quota(&changed), (20, 1, Algorithm::TokenBucket, Some(20)));
    let changed = overridden(bucket, r#"{"burst": 500}"#).expect("valid");
    assert_eq!(quota(&changed), (10, 1, Algorithm::TokenBucket, Some(500)));
}

#[test]
fn the_keys_of_a_window_replace_it_together_and_parameters_stay_with_their_algorithm() {
    let window = "unit: minute, unit_multiplier: 5, requests_per_unit: 10";
    for (with, seconds) in [(r#"{"unit": "hour"}"#, Unit::Hour.seconds()), (r#"{"unit_multiplier": 2}"#, 120)]
    {
        assert_eq!(quota(&overridden(window, with).expect("valid")).1, seconds);
    }
    let bucket = "unit: minute, requests_per_unit: 10, algorithm: token_bucket, burst: 5";
    let changed = overridden(bucket, r#"{"algorithm": "sliding_window"}"#).expect("valid");
    assert_eq!(quota(&changed), (10, 60, Algorithm::SlidingWindow, None));
}

#[test]
fn an_override_sets_a_candidate_with_the_other_values_of_the_rule() {
    let changed =
        overridden("unit: year, requests_per_unit: 9", r#"{"candidate": {"requests_per_unit": 8}}"#);
    let changed = changed.expect("valid");
    let candidate = changed.rollout.candidate.as_ref().expect("a candidate").quota;
    assert_eq!((quota(&changed).0, candidate.limit, candidate.window.unit()), (9, 8, Unit::Year));
}

#[test]
fn an_unlimited_rule_has_no_values_to_start_from() {
    assert!(overridden("unlimited: true", r#"{"requests_per_unit": 5}"#).unwrap_err().contains("unit"));
    let changed = overridden("unlimited: true", r#"{"requests_per_unit": 5, "unit": "day"}"#).expect("valid");
    assert_eq!(quota(&changed).0, 5);
    let changed = overridden("unit: day, requests_per_unit: 5", r#"{"unlimited": true}"#).expect("valid");
    assert_eq!(changed.limit, Limit::Unlimited);
}

#[test]
fn values_without_a_default_follow_the_new_limit() {
    let degraded = "unit: minute, requests_per_unit: 100, degraded_limit: 40";
    let limit = |with: &str| overridden(degraded, with).expect("valid").degraded_limit;
    assert_eq!(limit(r#"{"requests_per_unit": 10}"#), Some(10), "no more than otherwise");
    assert_eq!(limit(r#"{"requests_per_unit": 1000}"#), Some(40));
    assert_eq!(limit(r#"{"on_store_error": "deny"}"#), None);
    let banning = "unit: second, requests_per_unit: 100, ban: {duration: 10m}";
    let ban = overridden(banning, r#"{"requests_per_unit": 100000}"#).expect("valid").ban.expect("kept");
    assert_eq!((ban.duration, ban.grain), (600, 391));
}

#[test]
fn an_override_keeps_the_thresholds_states_others_or_none() {
    let stated = "unit: minute, requests_per_unit: 10, notify: [80%]";
    for (with, expected) in [
        (r#"{"requests_per_unit": 20}"#, Some("80%")),
        (r#"{"notify": ["50%"]}"#, Some("50%")),
        (r#"{"notify": []}"#, None),
        (r#"{"algorithm": "token_bucket", "notify": []}"#, None),
        (r#"{"unlimited": true}"#, None),
    ] {
        let changed = overridden(stated, with).expect(with);
        assert_eq!(changed.notify.map(|notify| notify.to_string()).as_deref(), expected, "{with}");
    }
    let added = overridden("unit: minute, requests_per_unit: 10", r#"{"notify": ["50%"]}"#).expect("valid");
    assert!(added.notify.is_some());
}

#[test]
fn what_an_override_cannot_change_is_refused_with_the_reason() {
    let fixed = "unit: minute, requests_per_unit: 10";
    for (limit, with, reason) in [
        (fixed, "{}", "empty"),
        (fixed, r#"{"name": "x"}"#, "identifies the rule"),
        (fixed, r#"{"replaces": [{"name": "x"}]}"#, "concerns other rules"),
        (fixed, r#"{"requests_per_unit": -1}"#, "whole number"),
        (fixed, r#"{"limit": 5}"#, "unknown key"),
        (fixed, r#"{"burst": 5}"#, "is not a key of fixed_window"),
        (fixed, r#"{"algorithm": "concurrency"}"#, "permits"),
        (fixed, r#"{"ban": {}}"#, "without `ban`"),
        (&*format!("{fixed}, notify: [80%]"), r#"{"algorithm": "token_bucket"}"#, "has no thresholds"),
        (fixed, "[1]", "mapping"),
        (fixed, "{", "invalid YAML"),
        ("algorithm: concurrency, requests_per_unit: 5", r#"{"unlimited": true}"#, "permits"),
        (&format!("{fixed}, algorithm: sliding_window"), r#"{"unit": "hour"}"#, "sliding window of 60"),
        (&format!("{fixed}, ban: {{}}"), r#"{"algorithm": "sliding_window_log"}"#, "has no bans"),
    ] {
        let error = overridden(limit, with).expect_err(with);
        assert!(error.contains(reason), "{with}: {error}");
    }
}

#[test]
fn an_override_by_its_own_limit_leaves_every_rule_of_the_examples_as_it_is() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/examples");
    let loaded = load(&directory, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut compared = 0;
    for domain in loaded.rules.domains() {
        for rule in domain.root.rules() {
            let Limit::Quota { quota, .. } = rule.limit else { continue };
            let with = format!(r#"{{"requests_per_unit": {}}}"#, quota.limit);
            let same = override_rule(&domain.name, rule, &with).unwrap_or_else(|error| panic!("{error}"));
            let text = |rule: &Rule| {
                let text = format!("{rule:?}");
                text.split(", derived:").next().map(str::to_owned).expect("a part")
            };
            assert_eq!(text(&same), text(rule));
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn an_override_with_another_rate_has_a_bucket_of_its_own() {
    let bucket = "unit: day, requests_per_unit: 100, algorithm: token_bucket";
    let record = |limit: &str, with: &str| {
        let changed = overridden(limit, with).expect("valid");
        assert_eq!(changed.cell_id(), rule(limit).cell_id());
        changed.record_id()
    };
    let base = rule(bucket).record_id();
    let lowered = record(bucket, r#"{"requests_per_unit": 1}"#);
    assert_ne!(lowered, base);
    assert_eq!(lowered.kind(), base.kind());
    assert_eq!(record(bucket, r#"{"requests_per_unit": 1, "burst": 7}"#), lowered);
    assert_ne!(record(bucket, r#"{"requests_per_unit": 2}"#), lowered);
    for same in [r#"{"burst": 7}"#, r#"{"requests_per_unit": 100}"#, r#"{"requests_per_unit": 0}"#] {
        assert_eq!(record(bucket, same), base, "{same}");
    }
    let kept = ["overdraft: true", "scope: global", "ban: {threshold: 1, interval: 1m, duration: 1m}"];
    for stated in kept.map(|stated| format!("{bucket}, {stated}")) {
        assert_eq!(record(&stated, r#"{"requests_per_unit": 1}"#), base, "{stated}");
    }
    let window = "unit: day, requests_per_unit: 100";
    assert_eq!(record(window, r#"{"requests_per_unit": 1}"#), rule(window).record_id());
}
