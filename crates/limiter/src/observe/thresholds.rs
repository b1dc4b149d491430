//! Thresholds of limits that counters reach.
//!
//! A counter above a threshold is reported by whichever instance decides on it first, not only by the one whose charge crossed
//! the threshold: so a crossing is noticed though it was part of a batch or of a lease, or though the instance that made it
//! stopped. Each process reports a threshold of a window once, as far as it remembers; the log of events keeps one of all
//! reports.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tollgate_core::{CountedKey, descriptor::Entry, quota::Quota};
use tollgate_rules::{Domain, Rule};

use super::BoundedQueue;
use crate::{decision::Limited, talkers};

/// Parts of the memory of windows, each with a lock of its own.
const SHARDS: usize = 16;

/// Maximum number of windows that a part remembers. With more, some thresholds are reported again, and the log drops
/// them.
const MAX_WINDOWS: usize = 4_096;

/// A threshold that a counter has reached in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedThreshold {
    /// The domain of the rule.
    pub domain: Box<str>,
    /// The rule's path.
    pub rule: Box<str>,
    /// Text of the descriptor, as among top talkers.
    pub key: String,
    /// Hash of what the counter counts, equal in every process.
    pub counted_key: u64,
    /// The threshold, in percent of the limit.
    pub percent: u16,
    /// Hits that counted in the window when it was noticed.
    pub used: u64,
    /// The limit and the window's length.
    pub quota: Quota,
    /// End of the window, in seconds since 1970.
    pub window_ends_at: u32,
}

/// Windows with reported thresholds.
#[derive(Debug, Default)]
pub(super) struct ReportedWindows([Mutex<Windows>; SHARDS]);

/// By the hash of what the counter counts: the end of the latest window, and the number of thresholds that were reported in
/// it.
type Windows = HashMap<u64, (u32, usize), RandomState>;

impl ReportedWindows {
    /// Reports the thresholds that a counter has reached, as far as they are new. Without room, a later hit reports them.
    pub(super) fn report(
        &self,
        domain: &Domain,
        rule: &Rule,
        entries: &[Entry<'_>],
        limited: &Limited<'_>,
        reports: &BoundedQueue<ReachedThreshold>,
    ) {
        let Some(notify) = &rule.notify else { return };
        let count = notify.reached(limited.verdict.used, limited.quota.limit);
        // While the store fails, an instance counts its own hits only.
        if count == 0 || limited.is_degraded {
            return;
        }
        // Not the reset, which with a carry is that of a later window.
        let window_end = rule.policy().and_then(|policy| policy.window_end(limited.verdict.decided_at));
        let Some(window_ends_at) = window_end else { return };
        // Not that of the keys, which several limits of a descriptor share.
        let open = rule.open(entries).map(|(_, entry)| (entry.key, entry.value));
        let counted_key = CountedKey::new(&domain.name, rule.record_id(), open).hash();
        let shard = usize::try_from(counted_key >> 32).unwrap_or_default() % SHARDS;
        let Some(windows) = self.0.get(shard) else { return };
        let mut windows = windows.lock();
        let reported = match windows.get(&counted_key) {
            // A verdict of an earlier window, which another worker has decided later.
            Some((end, _)) if *end > window_ends_at => return,
            Some((end, reported)) if *end == window_ends_at => *reported,
            _ => 0,
        };
        let new = notify.percentages().get(reported..count).unwrap_or_default();
        let reached = |percent: &u16| ReachedThreshold {
            domain: (*domain.name).into(),
            rule: rule.path().into(),
            key: talkers::text(entries),
            counted_key,
            percent: *percent,
            used: limited.verdict.used,
            quota: limited.quota,
            window_ends_at,
        };
        if new.is_empty() || !reports.add(new.iter().map(reached)) {
            return;
        }
        if windows.len() >= MAX_WINDOWS && !windows.contains_key(&counted_key) {
            make_room(&mut windows, limited.verdict.decided_at.seconds());
        }
        windows.insert(counted_key, (window_ends_at, count));
    }
}

/// Forgets windows that have ended, or all if none has.
fn make_room(windows: &mut Windows, now: u32) {
    windows.retain(|_, (end, _)| *end > now);
    if windows.len() >= MAX_WINDOWS {
        windows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_rules::Companion as _;
    use tollgate_store::Decisions;

    use crate::{
        Observations, OwnShares, RuleCounters, decision::Status, fold::Decided, observe::MAX_WAITING,
        test_prelude::*,
    };

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
}
