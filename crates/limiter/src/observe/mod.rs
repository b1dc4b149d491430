//! Observes the limits of a request after their decision: metrics, top talkers, and observations that others read later.
//!
//! Bans are shown only: the counters' own records decide. Metrics are counted at once, since an increment costs less than a
//! place in a queue, and top talkers are sampled first, by each thread. Rare observations wait in bounded queues: each kind
//! in one of its own, so that a reader that waits for its store holds up no other one.

mod thresholds;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{collections::VecDeque, iter};

use parking_lot::Mutex;
use tollgate_core::{ban::Ban, descriptor::Entry};
use tollgate_rules::{Domain, Rule};

pub use self::thresholds::ReachedThreshold;
use self::thresholds::ReportedWindows;
use crate::candidates::{self, Outcome};
use crate::decision::{Code, Limited, Status};
use crate::metrics::{self, RuleCounters};
use crate::plan::{Match, Plan, PlannedLimit};
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

/// Decided request.
#[derive(Clone, Copy)]
struct Observed<'a> {
    counters: &'a RuleCounters,
    modes: Modes,
    domain: &'a Domain,
    decided: Decided<'a>,
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
        let observed = Observed { counters, modes, domain, decided };
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
                Status::Limited(limited) => self.observe_limited(observed, at, limit, limited),
                Status::Shedding(shed) => counters.shedding(domain, shed, hits),
                Status::NoLimit | Status::Unlimited | Status::Off { .. } | Status::Denied => {}
            }
        }
    }

    /// Observes the decision of a counter, whose limit is at `at` in the plan.
    fn observe_limited(
        &self,
        observed: Observed<'_>,
        at: usize,
        limit: &PlannedLimit<'_, '_>,
        limited: &Limited<'_>,
    ) {
        let Observed { counters, modes, domain, .. } = observed;
        let Some(counter) = limit.matched.counter() else { return };
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
        let mut verdicts = observed.decided.decisions.iter().flatten().flatten();
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
