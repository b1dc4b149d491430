//! Observes the limits of a request after their decision: metrics, top talkers, and observations that others read later.
//!
//! Bans are shown only: the counters' own records decide. Metrics are counted at once, since an increment costs less than a
//! place in a queue, and top talkers are sampled first, by each thread. Rare observations wait in bounded queues: each kind
//! in one of its own, so that a reader that waits for its store holds up no other one.
//!
//! A counter above a threshold is reported by whichever instance decides on it first, not only by the one whose charge crossed
//! the threshold: so a crossing is noticed though it was part of a batch or of a lease, or though the instance that made it
//! stopped. Each process reports a threshold of a window once, as far as it remembers; the log of events keeps one of all
//! reports.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tollgate_core::{CountedKey, ban::Ban, descriptor::Entry, quota::Quota};
use tollgate_rules::{Domain, Rule};

use crate::candidates::{self, Outcome};
use crate::decision::{Code, Limited, Status};
use crate::metrics::{self, RuleCounters};
use crate::plan::{Match, Plan};
use crate::{Modes, fold::Decided, talkers};

/// Maximum number of observations of a kind that wait to be taken.
const MAX_WAITING: usize = 1_024;

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

/// Bans that began and thresholds that were reached in this process, until they are taken. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Observations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    bans: BoundedQueue<BegunBan>,
    dropped_bans: AtomicU64,
    thresholds: BoundedQueue<ReachedThreshold>,
    windows: ReportedWindows,
}

/// Observations of one kind, oldest first.
#[derive(Debug)]
struct BoundedQueue<T>(Mutex<VecDeque<T>>);

impl<T> Default for BoundedQueue<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> BoundedQueue<T> {
    fn take(&self, max: usize) -> Vec<T> {
        let mut waiting = self.0.lock();
        let count = max.min(waiting.len());
        waiting.drain(..count).collect()
    }

    /// Adds observations, all or none. Returns whether there is room.
    fn add(&self, observations: impl ExactSizeIterator<Item = T>) -> bool {
        let mut waiting = self.0.lock();
        let has_room = waiting.len().saturating_add(observations.len()) <= MAX_WAITING;
        if has_room {
            waiting.extend(observations);
        }
        has_room
    }
}

impl Observations {
    /// Takes up to `max` of the bans, oldest first.
    pub fn take_bans(&self, max: usize) -> Vec<BegunBan> {
        self.0.bans.take(max)
    }

    /// Number of bans that were not recorded since the start, because too many waited or their entries were too long.
    pub fn dropped_bans(&self) -> u64 {
        self.0.dropped_bans.load(Ordering::Relaxed)
    }

    /// Takes up to `max` of the thresholds, oldest first.
    pub fn take_thresholds(&self, max: usize) -> Vec<ReachedThreshold> {
        self.0.thresholds.take(max)
    }

    /// Observes the limits of a plan, given their statuses.
    pub(super) fn observe(
        &self,
        counters: &RuleCounters,
        modes: Modes,
        plan: &Plan<'_, '_>,
        statuses: &[Status<'_>],
        decided: Decided<'_>,
    ) {
        let Plan { domain, limits, .. } = plan;
        for (at, (limit, status)) in limits.iter().zip(statuses).enumerate() {
            // Values of a report are no keys of clients.
            if limit.matched.is_report() {
                continue;
            }
            let hits = limit.hits.charged();
            if !limit.is_extra {
                let rest = limits.iter().zip(statuses).skip(at.saturating_add(1));
                let mut extra = rest.take_while(|(limit, _)| limit.is_extra).map(|(_, status)| status);
                let denies = |status: &Status<'_>| status.code() == Code::OverLimit;
                talkers::record(&domain.name, limit.entries, hits, denies(status) || extra.any(denies));
            }
            match status {
                Status::Limited(limited) => self.observe_limited(counters, modes, plan, at, limited, decided),
                Status::Shedding(shed) => counters.shedding(domain, shed, hits),
                Status::NoLimit | Status::Unlimited | Status::Off { .. } | Status::Denied => {}
            }
        }
    }

    /// Observes the decision of a counter, whose limit is at `at` in the plan.
    fn observe_limited(
        &self,
        counters: &RuleCounters,
        modes: Modes,
        Plan { domain, limits, .. }: &Plan<'_, '_>,
        at: usize,
        limited: &Limited<'_>,
        decided: Decided<'_>,
    ) {
        let Some((limit, counter)) = limits.get(at).and_then(|limit| Some((limit, limit.matched.counter()?)))
        else {
            return;
        };
        let (hits, share) = (counter.hits, counter.share.map(|share| share.base));
        counters.hits(domain, limit.entries, limited, share, hits, modes.near_limit_ratio);
        let Match::Rule { rule, side, .. } = limit.matched else { return };
        if let Some(side) = side {
            counters.rollouts.side(domain, rule, side, limit.entries, hits, &limited.verdict);
        }
        if !rule.is_observed() {
            return;
        }
        if share.is_some() && !limited.verdict.admitted {
            counters.shares.add(rule, [limited.verdict.over.min(hits.charged())]);
        }
        if let Some(ban) = &limited.verdict.ban {
            metrics::count_ban(&counters.bans, rule, ban, hits.charged());
            if ban.is_new {
                self.add_ban(domain, rule, limit.counted_entries(), *ban);
            }
        }
        let mut verdicts = decided.decisions.iter().flatten().flatten();
        if let Some((_, candidate)) = verdicts.find(|(of, _)| *of == candidates::marked(at)) {
            let outcome = Outcome::of(limited.verdict.admitted, candidate.admitted);
            candidates::compare(counters, domain, rule, limit.counted_entries(), outcome, hits.charged());
        }
        self.0.windows.report(domain, rule, limit.counted_entries(), limited, &self.0.thresholds);
    }

    fn add_ban(&self, domain: &Domain, rule: &Rule, entries: &[Entry<'_>], ban: Ban) {
        let lengths = entries.iter().map(|entry| entry.key.len().saturating_add(entry.value.len()));
        let begun = || BegunBan {
            domain: (*domain.name).into(),
            rule: rule.path().into(),
            entries: entries.iter().map(|entry| (entry.key.into(), entry.value.into())).collect(),
            ban,
            is_listed: ban.is_enforced && rule.ban.is_some_and(|policy| policy.lists(ban.level.get())),
        };
        if lengths.sum::<usize>() > MAX_ENTRY_BYTES || !self.0.bans.add(iter::once_with(begun)) {
            self.0.dropped_bans.fetch_add(1, Ordering::Relaxed);
        }
    }
}

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
struct ReportedWindows([Mutex<Windows>; SHARDS]);

/// By the hash of what the counter counts: the end of the latest window, and the number of thresholds that were reported in
/// it.
type Windows = HashMap<u64, (u32, usize), RandomState>;

impl ReportedWindows {
    /// Reports the thresholds that a counter has reached, as far as they are new. Without room, a later hit reports them.
    fn report(
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
