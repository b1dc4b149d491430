//! Thresholds that counters reach.

use super::*;
use tollgate_rules::Companion as _;
use tollgate_store::Decisions;

use crate::{Observations, OwnShares, RuleCounters, decision::Status, fold::Decided, test_prelude::*};

const RULES: &str = "
domain: d
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 200, notify: [100%, 50%, 80%]}}
- {key: other, rate_limit: {unit: minute, requests_per_unit: 200}}
";

/// Records a verdict with these used hits at this second.
fn decide(reached: &Observations, key: &str, value: &str, used: u64, second: u64, degraded: bool) {
    let rules = rules_of(RULES, Options::default());
    let domain = rules.domain("d").expect("stated");
    let descriptors = [descriptor(&[(key, value)], Hits::ONE)];
    let clock = Clock::System;
    let (switched, overridden) = (Switched::default(), Overridden::default());
    let changes = Changes { switched: &switched, overridden: &overridden, clock: &clock };
    let (modes, shares) = (Modes::default(), OwnShares::default());
    let mut plan = matching::plan(domain, changes, &descriptors);
    calls::add(&mut plan, &ChargeTerms { modes, shares: &shares, clock: &clock, lease: None });
    let rule = plan.limits[0].matched.rule().expect("matches");
    let Limit::Quota { quota, policy } = rule.limit else { panic!("unlimited") };
    let verdict = Verdict {
        admitted: used <= 200,
        reset_after: Duration::from_secs(1),
        used,
        ..Verdict::empty(Timestamp::from_micros(second * 1_000_000))
    };
    let limited = Limited {
        rule: Some(rule),
        quota,
        algorithm: policy.algorithm(),
        verdict,
        is_quota: false,
        is_shadow: false,
        is_degraded: degraded,
        several: Box::default(),
    };
    let counters = RuleCounters::for_rules(&rules);
    let decided = Decided { decisions: &Decisions::new(), degraded: None };
    reached.observe(&counters, modes, &plan, &[Status::Limited(limited)], decided);
}

fn taken(reached: &Observations) -> Vec<(u16, u32)> {
    reached.take_thresholds(usize::MAX).into_iter().map(|one| (one.percent, one.window_ends_at)).collect()
}

#[test]
fn each_threshold_of_a_window_is_reported_once_though_the_charge_that_crossed_it_was_not_seen() {
    let reached = Observations::default();
    for (used, second, expected) in [
        (99, 0, vec![]),
        (100, 1, vec![(50, 60)]),
        (120, 2, vec![]),
        (200, 3, vec![(80, 60), (100, 60)]),
        (250, 59, vec![]),
        // Above a threshold once more, after a refund.
        (10, 59, vec![]),
        (180, 59, vec![]),
        (99, 60, vec![]),
        (160, 61, vec![(50, 120), (80, 120)]),
        // A verdict of the last window that arrives late.
        (200, 59, vec![]),
    ] {
        decide(&reached, "user", "ann", used, second, false);
        assert_eq!(taken(&reached), expected, "{used} at {second}");
    }
}

#[test]
fn counters_are_separate_and_those_without_thresholds_or_with_a_degraded_verdict_are_not_reported() {
    let reached = Observations::default();
    decide(&reached, "user", "ann", 150, 0, true);
    decide(&reached, "other", "ann", 150, 0, false);
    assert_eq!(taken(&reached), []);
    decide(&reached, "user", "ann", 150, 0, false);
    decide(&reached, "user", "bob", 170, 0, false);
    let keys = reached.take_thresholds(usize::MAX).into_iter().map(|one| (one.key, one.percent));
    let keys: Vec<_> = keys.collect();
    let expected = [("user=ann", 50), ("user=bob", 50), ("user=bob", 80)];
    assert_eq!(keys, expected.map(|(key, percent)| (key.to_owned(), percent)));
}

#[test]
fn what_finds_no_room_is_reported_by_a_later_hit_and_memory_is_bounded() {
    let reached = Observations::default();
    for user in 0..MAX_WAITING + 5 {
        decide(&reached, "user", &user.to_string(), 100, 0, false);
    }
    assert_eq!(reached.take_thresholds(usize::MAX).len(), MAX_WAITING);
    decide(&reached, "user", &(MAX_WAITING + 4).to_string(), 100, 0, false);
    assert_eq!(taken(&reached), [(50, 60)]);
    let windows: usize = reached.0.windows.0.iter().map(|windows| windows.lock().len()).sum();
    assert_eq!(windows, MAX_WAITING + 1);
}
