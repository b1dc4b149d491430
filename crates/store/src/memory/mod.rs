//! The embedded store: counters in this process, bounded in number.

mod counter_key;
mod shard;
mod slab;
mod eviction;

use std::{array, hash::BuildHasher as _, sync::Arc};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;

use self::{counter_key::CounterKey, eviction::EvictionRank, shard::Shard};
use super::request::{Cell, Check, TagRequest, Verdicts};
use tollgate_core::{
    algorithm::{Charging, Policy, State, Verdict},
    clock::{Clock, Timestamp},
    descriptor::Hits,
};

/// A power of two, so that a few bits of a hash pick the shard.
const SHARDS: usize = 64;

/// Counters in this process, shared by all its workers: a clone is a handle on the same counters.
///
/// A counter belongs to the shard of its hash tag, so one lock covers one call.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    hasher: RandomState,
    shards: [Apart<Mutex<Shard>>; SHARDS],
}

/// Kept out of its neighbours' cache lines, which are fetched in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

/// Whether each ask of a call passes.
type Passes = SmallVec<[bool; 4]>;

/// What becomes of an ask.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// It is decided.
    Due,
    /// It is not charged because one is denied, itself or another; whether it would have passed alone.
    HeldBack { passes: bool },
}

/// A counter while charges are weighed, none of which is made.
#[derive(Clone, Debug)]
enum Weighed {
    /// A copy, as if they were.
    Copy(State),
    /// What keeps hits by themselves is too large to be copied: the hits that would have been charged before.
    Queue { earlier: u64 },
}

impl Weighed {
    fn of(state: &mut State, policy: &Policy) -> Self {
        match policy.algorithm().has_own_key() {
            true => Self::Queue { earlier: 0 },
            false => Self::Copy(state.clone()),
        }
    }
}

/// How full a memory store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Counters that are held now; some of them may have ended.
    pub counters: usize,
    /// Live counters that were dropped since the start to make room for new ones.
    pub evicted: u64,
}

impl MemoryStore {
    /// A store that keeps about `capacity` counters at most: an equal part in each of its 64 shards, and at
    /// least one. Every four hits of a log, or leases, weigh as much as a counter.
    pub fn new(capacity: usize, clock: Clock) -> Self {
        let hasher = RandomState::default();
        let shard = || Shard::new(capacity.div_ceil(SHARDS), hasher.clone());
        let shards = array::from_fn(|_| Apart(Mutex::new(shard())));
        Self { shared: Arc::new(Shared { clock, hasher, shards }) }
    }

    /// Decides a call in one step.
    pub fn decide(&self, call: &TagRequest) -> Verdicts {
        let shared = &*self.shared;
        let at = shared.hasher.hash_one(call.tag()) as usize % SHARDS;
        let Some(shard) = shared.shards.get(at) else { return Verdicts::new() };
        let mut shard = shard.0.lock();
        // Read under the lock, so that time does not run backwards within a shard.
        let now = shared.clock.now();
        let weighed = match call.charging {
            Charging::Independent => None,
            Charging::AllOrNone => self.weigh(&mut shard, call, now),
        };
        let mut verdicts = Verdicts::new();
        for (at, (cell, ask)) in call.checks_with_cells().enumerate() {
            let passes = weighed.as_ref().and_then(|passes| passes.get(at).copied());
            let outcome = match passes {
                Some(passes) if !ask.hits.is_refund() => Outcome::HeldBack { passes },
                Some(_) | None => Outcome::Due,
            };
            let verdict = self.decide_one(&mut shard, cell, ask, ask.counting(call.charging), now, outcome);
            verdicts.push((ask.descriptor, verdict));
        }
        verdicts
    }

    /// Says which asks would pass, each after the charges before it, if one of them keeps the others from being
    /// charged. Charges none. What gives back frees nothing for the others.
    fn weigh(&self, shard: &mut Shard, call: &TagRequest, now: Timestamp) -> Option<Passes> {
        let mut weighed: SmallVec<[(CounterKey<'_>, Weighed); 4]> = SmallVec::new();
        let (mut passes, mut is_vetoed) = (Passes::new(), false);
        for (cell, ask) in call.checks_with_cells() {
            if ask.hits.is_refund() {
                passes.push(true);
                continue;
            }
            let name = CounterKey::new(&self.shared.hasher, cell.key.as_bytes(), &ask.record);
            let known = weighed.iter().position(|(known, _)| *known == name);
            let at = known.unwrap_or(weighed.len());
            if known.is_none() {
                weighed.push((name, shard.look(&name, |state| Weighed::of(state, &ask.policy))));
            }
            let admitted = weighed.get_mut(at).is_some_and(|(_, weighed)| match weighed {
                Weighed::Copy(state) => ask.policy.apply(state, now, ask.hits, Charging::AllOrNone),
                Weighed::Queue { earlier } => {
                    let look = |state: &mut State| ask.policy.passes(state, now, *earlier, ask.hits);
                    let admitted = shard.look(&name, look).unwrap_or_default();
                    *earlier = earlier.saturating_add(if admitted { ask.hits.charged() } else { 0 });
                    admitted
                }
            });
            is_vetoed |= ask.is_veto() && !admitted;
            passes.push(admitted);
        }
        is_vetoed.then_some(passes)
    }

    fn decide_one(
        &self,
        shard: &mut Shard,
        cell: &Cell,
        ask: &Check,
        charging: Charging,
        now: Timestamp,
        outcome: Outcome,
    ) -> Verdict {
        let name = CounterKey::new(&self.shared.hasher, cell.key.as_bytes(), &ask.record);
        shard.decide(&name, now, |state| {
            let admitted = match outcome {
                Outcome::Due => ask.policy.apply(state, now, ask.hits, charging),
                Outcome::HeldBack { passes } => {
                    ask.policy.apply(state, now, Hits::Peek, charging);
                    passes
                }
            };
            let summary = ask.policy.summary(state, now, ask.hits);
            let verdict = ask.policy.verdict(summary, now, ask.hits, admitted, charging);
            let (exhausted, expires_at) = (verdict.remaining == 0, ask.policy.expires_at(state));
            (verdict, EvictionRank::new(exhausted, expires_at))
        })
    }

    /// How full the store is.
    pub fn occupancy(&self) -> Occupancy {
        self.shared.shards.iter().fold(Occupancy::default(), |sum, shard| {
            let shard = shard.0.lock();
            Occupancy {
                counters: sum.counters.saturating_add(shard.len()),
                evicted: sum.evicted.saturating_add(shard.evicted()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
