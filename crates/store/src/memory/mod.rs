//! Memory store: counters in this process, bounded in number.

mod loans;
mod shard;
mod slab;

use std::{array, future::ready, hash::BuildHasher as _, sync::Arc, time::Duration};

use foldhash::quality::RandomState;
use futures_util::future::{BoxFuture, Either, FutureExt as _};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::algorithm::{Charging, CounterState, Policy, Verdict};
use tollgate_core::ban::{Ban, BanCheck, BanEffect, BanRecord};
use tollgate_core::clock::{Clock, Timestamp};
use tollgate_core::{RecordId, descriptor::Hits};

use self::loans::LoanBook;
use self::shard::{CounterKey, EvictionRank, Shard};
use crate::request::{Cell, Check, TagRequest, Verdicts};
use crate::store::{CounterStore, LoanStep, PendingDecision, TimeLimits};
use crate::{CachePadded, StoreError, key::CellKey, loans::SharedCounter};

/// A power of two, so that a few bits of a hash select the shard.
const SHARDS: usize = 64;

/// Counters in this process, shared by all workers: clones are handles on the same counters.
///
/// A counter belongs to the shard of its hash tag, so one lock covers one request.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<SharedShards>,
}

#[derive(Debug)]
struct SharedShards {
    clock: Clock,
    hasher: RandomState,
    shards: [CachePadded<Mutex<LockedShard>>; SHARDS],
}

/// The counters of a shard, and the loans of those that regions share.
#[derive(Debug)]
struct LockedShard {
    counters: Shard,
    loans: LoanBook,
}

/// Whether each check of a request passes.
type Passes = SmallVec<[bool; 4]>;

/// Whether a check charges its counter.
#[derive(Clone, Copy, Debug)]
enum ChargeMode {
    /// Charges if the check passes.
    Apply,
    /// Charges, though a check of the request is denied. Whether this one passes was found with the charges of the others, and
    /// holds without them.
    Count { passes: bool },
    /// Does not charge, because this check or another one is denied. Whether the check alone would have passed.
    Withhold { passes: bool },
}

impl ChargeMode {
    /// The mode of a check that a ban does not deny. `passes`: whether it passes, if the request is vetoed.
    fn of(check: &Check, charging: Charging, passes: Option<bool>) -> Self {
        match passes.filter(|_| !check.hits.is_refund()) {
            None => Self::Apply,
            Some(passes) if !check.hits.may_be_withheld() => Self::Count { passes },
            Some(false) if check.counting(charging) == Charging::Independent => Self::Count { passes: false },
            Some(passes) => Self::Withhold { passes },
        }
    }
}

/// State of a counter during a precheck, in which nothing is charged.
#[derive(Clone, Debug)]
enum PrecheckState {
    /// A copy that is charged instead.
    Copy(CounterState),
    /// A log or queue of hits is too large to be copied: the hits that earlier checks would have charged.
    Queue { earlier: u64 },
}

/// The active ban of each check of a request; empty for a request without bans.
type ActiveBans = SmallVec<[Option<Ban>; 1]>;

/// Occupancy of a memory store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Counters held now; some of them may have expired.
    pub counters: usize,
    /// Live counters evicted since the start to make room for new ones.
    pub evicted: u64,
}

impl SharedShards {
    /// Locks the shard of a hash tag, and reads the time under the lock, so that it is monotonic within a shard.
    fn lock(&self, tag: &[u8]) -> Option<(MutexGuard<'_, LockedShard>, Timestamp)> {
        let shard = self.shards.get(self.hasher.hash_one(tag) as usize % SHARDS)?.0.lock();
        Some((shard, self.clock.now()))
    }
}

impl CounterStore for MemoryStore {
    fn decide_by<'a>(&'a self, request: &'a TagRequest, _: Option<Instant>) -> PendingDecision<'a> {
        Either::Left(ready(Ok(self.decide(request))))
    }

    fn time_limits(&self) -> Option<TimeLimits> {
        None
    }

    fn with_loans<'a>(
        &'a self,
        counter: &'a SharedCounter,
        _: Duration,
        step: &'a mut LoanStep<'a>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        ready(loans::with_loans(self, counter, step)).boxed()
    }

    fn decide_from_cache(&self, request: &TagRequest) -> Option<Verdicts> {
        Some(self.decide(request))
    }
}

impl MemoryStore {
    /// A store for about `capacity` counters: an equal part in each of its 64 shards, and at least one in each. Every
    /// four hits of a log, or leases, weigh as much as a counter.
    pub fn new(capacity: usize, clock: Clock) -> Self {
        let hasher = RandomState::default();
        let shard = || LockedShard {
            counters: Shard::new(capacity.div_ceil(SHARDS), hasher.clone()),
            loans: LoanBook::default(),
        };
        let shards = array::from_fn(|_| CachePadded(Mutex::new(shard())));
        Self { shared: Arc::new(SharedShards { clock, hasher, shards }) }
    }

    /// Decides a request in one step.
    pub fn decide(&self, request: &TagRequest) -> Verdicts {
        let Some((mut shard, now)) = self.shared.lock(request.tag()) else { return Verdicts::new() };
        let bans = self.settle_bans(&mut shard.counters, request, now);
        let vetoed = match request.charging {
            Charging::Independent => None,
            Charging::AllOrNone => self.precheck(&mut shard, request, now, &bans),
        };
        let mut verdicts = Verdicts::new();
        for (at, (cell, check)) in request.checks_with_cells().enumerate() {
            let passes = vetoed.as_ref().and_then(|passes| passes.get(at).copied());
            let ban = bans.get(at).copied().flatten();
            let mode = if is_banned(ban.as_ref(), check) {
                ChargeMode::Withhold { passes: false }
            } else {
                ChargeMode::of(check, request.charging, passes)
            };
            let verdict =
                self.decide_one(&mut shard, cell, check, check.counting(request.charging), now, mode);
            let verdict = match ban {
                Some(ban) => verdict.under(ban, check.hits),
                None => {
                    // Withheld hits that would have passed were neither admitted nor denied.
                    if !matches!(mode, ChargeMode::Withhold { passes: true }) {
                        self.count_for_ban(&mut shard.counters, cell, check, now, verdict.admitted);
                    }
                    verdict
                }
            };
            verdicts.push((check.descriptor, verdict));
        }
        verdicts
    }

    /// Raises a counter to `state`, if that leaves less than the counter does.
    pub fn raise(&self, cell: &CellKey, record: RecordId, policy: &Policy, mut state: CounterState) {
        let shared = &*self.shared;
        let Some((mut shard, now)) = shared.lock(cell.tag()) else { return };
        let name = CounterKey::new(&shared.hasher, cell.as_bytes(), record.as_bytes());
        shard.counters.decide(&name, now, |known| {
            if policy.is_fuller(&mut state, known, now) {
                *known = state;
            }
            let is_exhausted = policy.peek(known, now).remaining == 0;
            ((), EvictionRank::new(is_exhausted, policy.expires_at(known)))
        });
    }

    /// Hits of a counter that count now, at most the limit.
    pub fn used(&self, cell: &CellKey, record: RecordId, policy: &Policy) -> u64 {
        let shared = &*self.shared;
        let Some((mut shard, now)) = shared.lock(cell.tag()) else { return 0 };
        let name = CounterKey::new(&shared.hasher, cell.as_bytes(), record.as_bytes());
        shard.counters.inspect(&name, |state| policy.peek(state, now).used.min(policy.limit()))
    }

    /// Returns which checks would pass, each after the charges before it, if a veto keeps the counters from being
    /// charged; otherwise `None`. Charges nothing. Refunds free nothing for the other checks.
    fn precheck(
        &self,
        shard: &mut LockedShard,
        request: &TagRequest,
        now: Timestamp,
        bans: &ActiveBans,
    ) -> Option<Passes> {
        let mut states: SmallVec<[(CounterKey<'_>, PrecheckState); 4]> = SmallVec::new();
        let mut passes = Passes::new();
        for (at, (cell, check)) in request.checks_with_cells().enumerate() {
            if check.hits.is_refund() {
                passes.push(true);
                continue;
            }
            if bans.get(at).is_some_and(|ban| is_banned(ban.as_ref(), check)) {
                passes.push(false);
                continue;
            }
            let name = CounterKey::new(&self.shared.hasher, cell.key.as_bytes(), check.record.as_bytes());
            let known = states.iter().position(|(known, _)| *known == name);
            let at = known.unwrap_or(states.len());
            if known.is_none() {
                let state = match check.policy.algorithm().has_own_key() {
                    true => PrecheckState::Queue { earlier: 0 },
                    false => PrecheckState::Copy(shard.counters.inspect(&name, |state| state.clone())),
                };
                states.push((name, state));
            }
            let share = shard.loans.share(cell, check);
            let admitted = states.get_mut(at).is_some_and(|(_, state)| match state {
                PrecheckState::Copy(state) => {
                    let policy = share.map_or(check.policy, |share| share.policy(check.policy, state, now));
                    policy.apply(state, now, check.hits, Charging::AllOrNone)
                }
                PrecheckState::Queue { earlier } => {
                    let inspect =
                        |state: &mut CounterState| check.policy.passes(state, now, *earlier, check.hits);
                    let admitted = shard.counters.inspect(&name, inspect).unwrap_or_default();
                    let is_charged = admitted || check.hits.is_overdraft();
                    *earlier = earlier.saturating_add(if is_charged { check.hits.charged() } else { 0 });
                    admitted
                }
            });
            passes.push(admitted);
        }
        request.is_vetoed(passes.iter().copied()).then_some(passes)
    }

    fn decide_one(
        &self,
        shard: &mut LockedShard,
        cell: &Cell,
        check: &Check,
        charging: Charging,
        now: Timestamp,
        mode: ChargeMode,
    ) -> Verdict {
        let name = CounterKey::new(&self.shared.hasher, cell.key.as_bytes(), check.record.as_bytes());
        let share = shard.loans.share(cell, check);
        let (verdict, expires_at) = shard.counters.decide(&name, now, |state| {
            let policy = share.map_or(check.policy, |share| share.policy(check.policy, state, now));
            let admitted = match mode {
                ChargeMode::Apply => policy.apply(state, now, check.hits, charging),
                ChargeMode::Count { passes } => {
                    policy.apply(state, now, check.hits, charging);
                    passes
                }
                ChargeMode::Withhold { passes } => {
                    policy.apply(state, now, Hits::Peek, charging);
                    passes
                }
            };
            let summary = policy.summary(state, now, check.hits);
            let verdict = policy.verdict(summary, now, check.hits, admitted, charging);
            let (exhausted, expires_at) = (verdict.remaining == 0, policy.expires_at(state));
            ((verdict, expires_at), EvictionRank::new(exhausted, expires_at))
        });
        if share.is_some() {
            shard.loans.prolong(cell, check, now, expires_at);
        }
        verdict
    }

    /// Current occupancy.
    pub fn occupancy(&self) -> Occupancy {
        let of = |shard: &CachePadded<Mutex<LockedShard>>| {
            let counters = &shard.0.lock().counters;
            (counters.len(), counters.evicted)
        };
        let (counters, evicted): (Vec<_>, Vec<_>) = self.shared.shards.iter().map(of).unzip();
        Occupancy { counters: counters.iter().sum(), evicted: evicted.iter().sum() }
    }
}

/// Bans of counters: their records stand beside the counters, in the same shard.
impl MemoryStore {
    /// Settles the bans of a request before anything is charged.
    fn settle_bans(&self, shard: &mut Shard, request: &TagRequest, now: Timestamp) -> ActiveBans {
        if request.checks().all(|check| check.ban.is_none()) {
            return ActiveBans::new();
        }
        let settle = |(cell, check): (&Cell, &Check)| {
            let ban = check.applied_ban()?;
            self.on_record(shard, cell, check, now, |record| settle(record, check, &ban, now))
        };
        request.checks_with_cells().map(settle).collect()
    }

    /// Counts the outcome of a check: the charged hits if it was admitted or denied by itself.
    fn count_for_ban(&self, shard: &mut Shard, cell: &Cell, check: &Check, now: Timestamp, admitted: bool) {
        let Some(BanCheck { policy, .. }) = check.applied_ban() else { return };
        let hits = check.hits.charged();
        if hits > 0 {
            let (admitted, denied) = if admitted { (hits, 0) } else { (0, hits) };
            self.on_record(shard, cell, check, now, |record| record.count(&policy, now, admitted, denied));
        }
    }

    fn on_record<T>(
        &self,
        shard: &mut Shard,
        cell: &Cell,
        check: &Check,
        now: Timestamp,
        work: impl FnOnce(&mut BanRecord) -> T,
    ) -> T {
        let id = check.record.of_ban();
        let name = CounterKey::new(&self.shared.hasher, cell.key.as_bytes(), id.as_bytes());
        shard.decide(&name, now, |state| {
            let mut record = BanRecord::from_words(state.words());
            let result = work(&mut record);
            *state = CounterState::Words(record.words());
            // A ban is kept like a counter that denies.
            (result, EvictionRank::new(record.active(now).is_some(), record.expires_at()))
        })
    }
}

fn settle(record: &mut BanRecord, check: &Check, ban: &BanCheck, now: Timestamp) -> Option<Ban> {
    let active = record.active(now);
    match ban.effect {
        BanEffect::Lift => record.lift(),
        BanEffect::Forgive => *record = BanRecord::default(),
        BanEffect::Watch | BanEffect::Enforce if check.hits.charged() == 0 => {}
        BanEffect::Watch | BanEffect::Enforce => return ban.report(record.settle(&ban.policy, now, 0)),
    }
    ban.report(active)
}

/// Whether a ban denies a check.
fn is_banned(ban: Option<&Ban>, check: &Check) -> bool {
    ban.is_some_and(|ban| ban.is_enforced) && check.hits.may_be_withheld()
}

#[cfg(test)]
mod tests;
