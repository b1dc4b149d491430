//! `enforce_percent` and `candidate` of a limit.

use tollgate_core::{SyncMode, algorithm::Algorithm};

use super::{assert_says, clean, domain, errors, minutely as with, rule_of, warnings};
use crate::Rollout;

fn rollout(limit: &str) -> Rollout {
    rule_of(&with("", limit)).rollout.clone()
}

#[test]
fn a_share_of_the_keys_is_a_percentage() {
    for (text, hundredths) in [("10", 1_000), ("0.5", 50), ("100", 10_000), ("0", 0), ("12.5%", 1_250)] {
        let share = rollout(&format!("enforce_percent: {text}")).enforced.expect("a share");
        assert_eq!(share.hundredths(), hundredths, "{text}");
    }
    assert_eq!(rollout("enforce_percent:").enforced, None);
    for text in ["101", "-1", "0.005", "true", "half"] {
        let errors = errors(&with("", &format!("enforce_percent: {text}")));
        assert_says(&errors, &["enforce_percent", "a percentage from 0 to 100"]);
    }
}

#[test]
fn a_share_contradicts_shadow_mode_and_needs_several_keys() {
    let errors = errors(&with("shadow_mode: true", "enforce_percent: 10"));
    assert_says(&errors, &["rate_limit.enforce_percent", "contradicts `shadow_mode: true`"]);
    let warnings = warnings(&with("value: v", "enforce_percent: 10"));
    assert_says(&warnings, &["enforces all or nothing", "expected a limit whose counters differ by client"]);
    clean(&with("value: v", "enforce_percent: 100"));
    let unlimited = domain("  - {key: k, rate_limit: {unlimited: true, enforce_percent: 1}}\n");
    assert_says(&super::errors(&unlimited), &["contradicts `unlimited: true`"]);
}

#[test]
fn a_candidate_is_a_limit_with_counters_of_its_own() {
    let candidate =
        rollout("candidate: {algorithm: token_bucket, unit: second, requests_per_unit: 1, burst: 9}");
    let candidate = candidate.candidate.expect("a candidate");
    assert_eq!((candidate.policy.algorithm(), candidate.quota.limit), (Algorithm::TokenBucket, 1));
    assert_eq!(candidate.policy.burst(), Some(9));
    let rule = rule_of(&with("", "candidate: {unit: minute, requests_per_unit: 60}"));
    let candidate = rule.rollout.candidate.as_ref().expect("a candidate");
    assert_ne!(candidate.record, rule.record_id());
    assert_ne!(candidate.record.path(), rule.record_id().path());
}

#[test]
fn a_candidate_is_beside_a_strict_limit() {
    let candidate = "candidate: {unit: second, requests_per_unit: 1}";
    let text = with("", &format!("sync: leased, {candidate}"));
    assert_says(&warnings(&text), &["rate_limit.sync", "works as `strict` beside a `candidate`"]);
    let by_default = format!("defaults: {{sync: leased}}\n{}", with("", candidate));
    assert_eq!(rule_of(&by_default).sync, SyncMode::Strict);
}

#[test]
fn what_cannot_be_compared_is_rejected() {
    let window = "{unit: second, requests_per_unit: 1}";
    let permits = "{algorithm: concurrency, requests_per_unit: 1}";
    for text in [
        with("", &format!("candidate: {permits}")),
        domain(&format!(
            "  - key: k\n    rate_limit: {{algorithm: concurrency, requests_per_unit: 60, candidate: {window}}}\n"
        )),
    ] {
        assert_says(&errors(&text), &["rate_limit.candidate", "a concurrency limit holds permits"]);
    }
    let atomic = format!("atomic: true\n{}", with("", &format!("candidate: {window}")));
    assert_says(
        &errors(&atomic),
        &["rate_limit.candidate", "cannot be compared beside `atomic: true` at a.yaml:1"],
    );
    let global = with("", &format!("scope: global, candidate: {window}"));
    assert_says(&errors(&global), &["rate_limit.candidate", "cannot be compared beside `scope: global`"]);
    for key in
        ["name: x", "sync: leased", "ban: {}", "enforce_percent: 1", "candidate: {}", "unlimited: true"]
    {
        let text = with("", &format!("candidate: {{unit: second, requests_per_unit: 1, {key}}}"));
        let key = key.split(':').next().unwrap_or_default();
        assert_says(&errors(&text), &[&format!("rate_limit.candidate.{key}")]);
    }
    let missing = warnings(&with("", "candidate: {unit: second}"));
    assert_says(&missing, &["rate_limit.candidate", "has no `requests_per_unit`"]);
}
