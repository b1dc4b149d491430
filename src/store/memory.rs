//! The embedded store: counters in this process, bounded in number.

mod shard;

use std::{array, hash::BuildHasher as _, sync::Arc};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use self::shard::{Name, Shard};
use super::key::{Ask, Call, Cell, Verdicts};
use crate::{
    algorithm::Verdict,
    clock::{Clock, Timestamp},
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
    shards: [Mutex<Shard>; SHARDS],
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
    /// least one.
    pub fn new(capacity: usize, clock: Clock) -> Self {
        let shards = array::from_fn(|_| Mutex::new(Shard::new(capacity.div_ceil(SHARDS))));
        Self { shared: Arc::new(Shared { clock, hasher: RandomState::default(), shards }) }
    }

    /// Decides a call in one step.
    pub fn decide(&self, call: &Call) -> Verdicts {
        let shared = &*self.shared;
        let at = shared.hasher.hash_one(call.tag()) as usize % SHARDS;
        let Some(shard) = shared.shards.get(at) else { return Verdicts::new() };
        let mut shard = shard.lock();
        // Read under the lock, so that time does not run backwards within a shard.
        let now = shared.clock.now();
        let mut verdicts = Verdicts::new();
        for cell in &call.cells {
            for ask in &cell.asks {
                verdicts.push((ask.descriptor, self.decide_one(&mut shard, cell, ask, now)));
            }
        }
        verdicts
    }

    fn decide_one(&self, shard: &mut Shard, cell: &Cell, ask: &Ask, now: Timestamp) -> Verdict {
        let name = Name::new(&self.shared.hasher, cell.key.as_bytes(), ask.record);
        let mut state = shard.state(&name);
        let admitted = ask.policy.apply(&mut state, now, ask.hits);
        let verdict = ask.policy.verdict(state, now, ask.hits, admitted);
        shard.keep(&name, state, ask.policy.expires_at(state), verdict.remaining == 0, now);
        verdict
    }

    /// How full the store is.
    pub fn occupancy(&self) -> Occupancy {
        self.shared.shards.iter().fold(Occupancy::default(), |sum, shard| {
            let shard = shard.lock();
            Occupancy {
                counters: sum.counters.saturating_add(shard.len()),
                evicted: sum.evicted.saturating_add(shard.evicted()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{Algorithm, Policy},
        descriptor::{Entry, Hits},
        quota::{Quota, Unit, Window},
        rules::RecordId,
        store::key::CellKey,
    };

    fn call(value: &str, limit: u32, unit: Unit) -> Call {
        let key = CellKey::open("d", [Entry { key: "k", value }].into_iter());
        let mut call = Call::new(key.clone());
        let quota = Quota { limit, window: Window::of(unit) };
        let policy = Policy::new(Algorithm::FixedWindow, quota, None).expect("valid");
        let record = RecordId::alone(Algorithm::FixedWindow);
        call.ask(key, Ask { descriptor: 0, record, policy, hits: Hits::ONE });
        call
    }

    fn admitted(store: &MemoryStore, call: &Call) -> bool {
        store.decide(call)[0].1.admitted
    }

    #[test]
    fn counters_that_ended_make_room_without_an_eviction() {
        let clock = Clock::manual(Timestamp::from_micros(1_000_000_000));
        let store = MemoryStore::new(64, clock.clone());
        for second in 0_u64..10_000 {
            clock.set(Timestamp::from_micros(1_000_000_000 + second * 1_000_000));
            assert!(admitted(&store, &call(&second.to_string(), 1, Unit::Second)));
        }
        assert_eq!(store.occupancy().evicted, 0);
        assert!(store.occupancy().counters <= 64);
    }

    #[test]
    fn a_full_store_evicts_counters_that_deny_nothing_first() {
        let clock = Clock::manual(Timestamp::from_micros(1_000_000_000));
        let store = MemoryStore::new(64 * 32, clock);
        let exhausted: Vec<Call> = (0..64).map(|at| call(&format!("busy{at}"), 1, Unit::Hour)).collect();
        for call in &exhausted {
            assert!(admitted(&store, call));
        }
        for at in 0..20_000 {
            assert!(admitted(&store, &call(&format!("idle{at}"), 100, Unit::Hour)));
        }
        let occupancy = store.occupancy();
        assert!(occupancy.counters <= 64 * 32 && occupancy.evicted > 10_000, "{occupancy:?}");
        for call in &exhausted {
            assert!(!admitted(&store, call), "an enforced limit was forgotten");
        }
    }
}
