//! Events of decisions that operators are notified of: bans that begin, and thresholds of limits that are reached.
//!
//! Bans are shown only: the counters' own records decide. A counter above a threshold is reported by whichever instance
//! decides on it first, not only by the one whose charge crossed the threshold: so a crossing is noticed though it was part
//! of a batch or of a lease, or though the instance that made it stopped. Each process reports a threshold of a window once,
//! as far as it remembers; the log of events keeps one of all reports.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tollgate_core::{
    CountedKey,
    algorithm::Policy,
    ban::Ban,
    descriptor::{Descriptor, Entry},
    quota::Quota,
};
use tollgate_rules::{Domain, Rule};

use crate::{
    Match,
    decision::{Limited, Status},
    talkers::key,
};

/// Maximum number of begun bans that wait to be taken.
const MAX_WAITING_BANS: usize = 1_024;

/// Maximum length of the entries of one ban in bytes.
const MAX_ENTRY_BYTES: usize = 4_096;

/// A ban that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunBan {
    /// The domain of the rule.
    pub domain: Box<str>,
    /// The rule's path.
    pub rule: Box<str>,
    /// Entries of the descriptor, which identify the counter: keys and values.
    pub entries: Box<[(Box<str>, Box<str>)]>,
    /// The ban; whether it is enforced.
    pub ban: Ban,
    /// Whether the client is to be listed until its end.
    pub is_listed: bool,
}

/// Bans that began in this process, oldest first, until they are taken. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct BegunBans {
    waiting: Arc<Mutex<WaitingBans>>,
}

#[derive(Debug, Default)]
struct WaitingBans {
    bans: VecDeque<BegunBan>,
    dropped: u64,
}

impl BegunBans {
    /// Takes up to `max` of the bans, oldest first.
    pub fn take(&self, max: usize) -> Vec<BegunBan> {
        let mut waiting = self.waiting.lock();
        let count = max.min(waiting.bans.len());
        waiting.bans.drain(..count).collect()
    }

    /// Number of bans that were not recorded since the start, because too many waited or their entries were too long.
    pub fn dropped(&self) -> u64 {
        self.waiting.lock().dropped
    }

    /// Records the bans that began with a decision.
    pub(super) fn record(
        &self,
        domain: &Domain,
        descriptors: &[Descriptor<'_>],
        matches: &[Match<'_>],
        statuses: &[Status<'_>],
    ) {
        for ((descriptor, matched), status) in descriptors.iter().zip(matches).zip(statuses) {
            let ban = status.limited().and_then(|limited| limited.verdict.ban).filter(|ban| ban.is_new);
            if let (Some(ban), Match::Rule { rule, depth, .. }) = (ban, matched) {
                let entries = descriptor.entries.get(..*depth).unwrap_or_default();
                self.push(domain, rule, entries, ban);
            }
        }
    }

    fn push(&self, domain: &Domain, rule: &Rule, entries: &[Entry<'_>], ban: Ban) {
        let bytes: usize =
            entries.iter().map(|entry| entry.key.len().saturating_add(entry.value.len())).sum();
        let mut waiting = self.waiting.lock();
        if waiting.bans.len() >= MAX_WAITING_BANS || bytes > MAX_ENTRY_BYTES {
            waiting.dropped = waiting.dropped.saturating_add(1);
            return;
        }
        waiting.bans.push_back(BegunBan {
            domain: (*domain.name).into(),
            rule: rule.path().into(),
            entries: entries.iter().map(|entry| (entry.key.into(), entry.value.into())).collect(),
            ban,
            is_listed: ban.is_enforced && rule.ban.is_some_and(|policy| policy.lists(ban.level.get())),
        });
    }
}

/// Maximum number of reached thresholds that wait to be taken. Further ones are reported with later hits.
const MAX_WAITING_THRESHOLDS: usize = 1_024;

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

/// Thresholds that were reached in this process, oldest first, until they are taken. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ReachedThresholds(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: Mutex<VecDeque<ReachedThreshold>>,
    windows: [Mutex<Windows>; SHARDS],
}

/// Windows with reported thresholds, by the hash of what the counter counts: the end of the latest window, and the number
/// of thresholds that were reported in it.
type Windows = HashMap<u64, (u32, usize), RandomState>;

impl ReachedThresholds {
    /// Takes up to `max` of the thresholds, oldest first.
    pub fn take(&self, max: usize) -> Vec<ReachedThreshold> {
        let mut waiting = self.0.waiting.lock();
        let count = max.min(waiting.len());
        waiting.drain(..count).collect()
    }

    /// Records the thresholds that the counters of a decision have reached.
    pub(super) fn record(
        &self,
        domain: &Domain,
        descriptors: &[Descriptor<'_>],
        matches: &[Match<'_>],
        statuses: &[Status<'_>],
    ) {
        for ((descriptor, matched), status) in descriptors.iter().zip(matches).zip(statuses) {
            let Match::Rule { rule, depth, .. } = matched else { continue };
            // While the store fails, an instance counts its own hits only.
            let limited = status.limited().filter(|limited| !limited.is_degraded);
            if let (Some(notify), Some(limited)) = (&rule.notify, limited) {
                let count = notify.reached(limited.verdict.used, limited.quota.limit);
                let reached = notify.percentages().get(..count).unwrap_or_default();
                let entries = descriptor.entries.get(..*depth).unwrap_or_default();
                if !reached.is_empty() {
                    let key = || {
                        let mut text = Vec::new();
                        key::push(&mut text, 0, entries);
                        String::from_utf8_lossy(&text).into_owned()
                    };
                    // Not that of the keys, which several limits of a descriptor share.
                    let open = rule.open(entries).map(|(_, entry)| (entry.key, entry.value));
                    let counted_key = CountedKey::new(&domain.name, rule.record_id(), open);
                    self.reach(domain, rule, limited, counted_key.hash(), key, reached);
                }
            }
        }
    }

    /// Adds the first thresholds of a rule, which were `reached`, as far as they are new.
    fn reach(
        &self,
        domain: &Domain,
        rule: &Rule,
        limited: &Limited<'_>,
        counted_key: u64,
        key: impl Fn() -> String,
        reached: &[u16],
    ) {
        // Not the reset, which with a carry is that of a later window.
        let window_end = |policy: Policy| policy.window_end(limited.verdict.decided_at);
        let Some(window_ends_at) = rule.policy().and_then(window_end) else { return };
        let shard = usize::try_from(counted_key >> 32).unwrap_or_default() % SHARDS;
        let Some(windows) = self.0.windows.get(shard) else { return };
        let mut windows = windows.lock();
        let reported = match windows.get(&counted_key) {
            // A verdict of an earlier window, which another worker has decided later.
            Some((end, _)) if *end > window_ends_at => return,
            Some((end, reported)) if *end == window_ends_at => *reported,
            _ => 0,
        };
        let new = reached.get(reported..).unwrap_or_default();
        let mut waiting = self.0.waiting.lock();
        if new.is_empty() || waiting.len().saturating_add(new.len()) > MAX_WAITING_THRESHOLDS {
            return;
        }
        waiting.extend(new.iter().map(|percent| ReachedThreshold {
            domain: (*domain.name).into(),
            rule: rule.path().into(),
            key: key(),
            counted_key,
            percent: *percent,
            used: limited.verdict.used,
            quota: limited.quota,
            window_ends_at,
        }));
        drop(waiting);
        if windows.len() >= MAX_WINDOWS && !windows.contains_key(&counted_key) {
            let now = limited.verdict.decided_at.seconds();
            windows.retain(|_, (end, _)| *end > now);
            if windows.len() >= MAX_WINDOWS {
                windows.clear();
            }
        }
        windows.insert(counted_key, (window_ends_at, reached.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{matching::matches, test_prelude::*};

    const RULES: &str = "
domain: d
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 200, notify: [100%, 50%, 80%]}}
- {key: other, rate_limit: {unit: minute, requests_per_unit: 200}}
";

    /// Records a verdict with these used hits at this second.
    fn decide(reached: &ReachedThresholds, key: &str, value: &str, used: u64, second: u64, degraded: bool) {
        let rules = rules_of(RULES, Options::default());
        let domain = rules.domain("d").expect("stated");
        let descriptors = [descriptor(&[(key, value)], Hits::ONE)];
        let clock = Clock::System;
        let (switched, overridden) = (Switched::default(), Overridden::default());
        let changes = Changes { switched: &switched, overridden: &overridden, clock: &clock };
        let (matches, _) = matches(domain, changes, &descriptors);
        let rule = matches[0].rule().expect("matches");
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
        };
        reached.record(domain, &descriptors, &matches, &[Status::Limited(limited)]);
    }

    fn taken(reached: &ReachedThresholds) -> Vec<(u16, u32)> {
        reached.take(usize::MAX).into_iter().map(|one| (one.percent, one.window_ends_at)).collect()
    }

    #[test]
    fn each_threshold_of_a_window_is_reported_once_though_the_charge_that_crossed_it_was_not_seen() {
        let reached = ReachedThresholds::default();
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
        let reached = ReachedThresholds::default();
        decide(&reached, "user", "ann", 150, 0, true);
        decide(&reached, "other", "ann", 150, 0, false);
        assert_eq!(taken(&reached), []);
        decide(&reached, "user", "ann", 150, 0, false);
        decide(&reached, "user", "bob", 170, 0, false);
        let keys = reached.take(usize::MAX).into_iter().map(|one| (one.key, one.percent));
        let keys: Vec<_> = keys.collect();
        let expected = [("user=ann", 50), ("user=bob", 50), ("user=bob", 80)];
        assert_eq!(keys, expected.map(|(key, percent)| (key.to_owned(), percent)));
    }

    #[test]
    fn what_finds_no_room_is_reported_by_a_later_hit_and_memory_is_bounded() {
        let reached = ReachedThresholds::default();
        for user in 0..MAX_WAITING_THRESHOLDS + 5 {
            decide(&reached, "user", &user.to_string(), 100, 0, false);
        }
        assert_eq!(reached.take(usize::MAX).len(), MAX_WAITING_THRESHOLDS);
        decide(&reached, "user", &(MAX_WAITING_THRESHOLDS + 4).to_string(), 100, 0, false);
        assert_eq!(taken(&reached), [(50, 60)]);
        let windows: usize = reached.0.windows.iter().map(|windows| windows.lock().len()).sum();
        assert_eq!(windows, MAX_WAITING_THRESHOLDS + 1);
    }
}
