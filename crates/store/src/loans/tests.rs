//! Regions with a memory store each, which exchange messages that get lost: all of them together keep the limit.

use tollgate_core::{
    SyncMode,
    algorithm::{Algorithm, Charging, Parameters},
    clock::Clock,
    descriptor::{Entry, Hits},
    quota::{Quota, Window},
};
use tollgate_regions::{
    protocol::{self, Share},
    table::RegionName,
};

use super::*;
use crate::{
    MemoryStore,
    request::{Check, TagRequest, Veto},
};

const NAMES: [&str; 3] = ["ap", "eu", "us"];

/// A minute's start, in seconds since the epoch.
const START: u64 = 1_700_000_040;

struct World {
    clock: Clock,
    stores: Vec<MemoryStore>,
    counters: Vec<SharedCounter>,
    random: fastrand::Rng,
}

impl World {
    fn new(algorithm: Algorithm, quota: Quota, bases: [u32; 3], seed: u64) -> Self {
        let clock = Clock::manual(Timestamp::from_micros(START * 1_000_000));
        let whole = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
        let counter = |base: u32| {
            let share = RegionShare::new(quota, base).expect("a limit");
            SharedCounter {
                cell: CellKey::open("d", [Entry { key: "k", value: "v" }].into_iter()),
                record: RecordId::alone(algorithm),
                policy: whole.under_share(&share, base),
                share,
            }
        };
        Self {
            stores: bases.iter().map(|_| MemoryStore::new(1_000, clock.clone())).collect(),
            counters: bases.into_iter().map(counter).collect(),
            clock,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn name(at: usize) -> RegionName {
        NAMES[at].parse().expect("a name")
    }

    fn hit(&self, at: usize) -> bool {
        let SharedCounter { cell, record, policy, share } = self.counters[at].clone();
        let (hits, veto, sync) = (Hits::ONE, Veto::Alone, SyncMode::Strict);
        let check = Check { descriptor: 0, record, policy, hits, veto, sync, ban: None, share: Some(share) };
        let request = TagRequest::new(Charging::Independent, cell, check);
        self.stores[at].decide(&request)[0].1.admitted
    }

    fn transact<T>(&self, at: usize, step: impl FnMut(&mut Loans) -> T) -> T {
        self.stores[at].with_loans(&self.counters[at], step).expect("the store runs")
    }

    /// One region asks another; each message may be lost.
    fn exchange(&mut self, from: usize, to: usize) {
        let (hold, want, need) = (self.random.u32(..40), self.random.u32(..80), self.random.u32(..20));
        let (is_ask_lost, is_reply_lost) = (self.random.u8(..5) == 0, self.random.u8(..5) == 0);
        let mut asks = self.transact(from, |loans| {
            let (terms, now, usage) = (loans.terms, loans.now, loans.usage(0));
            let shares = [Share { peer: Self::name(to), hold, want }];
            let (asks, full_at) = protocol::ask(&mut loans.ledger, &terms, now, usage, &shares);
            loans.full_at = full_at;
            asks
        });
        let Some((_, ask)) = asks.pop().filter(|_| !is_ask_lost) else { return };
        let lent = self.transact(to, |loans| {
            let (terms, now, usage) = (loans.terms, loans.now, loans.usage(need));
            let lent = protocol::lend(&mut loans.ledger, &terms, now, usage, &Self::name(from), &ask);
            loans.full_at = lent.as_ref().map_or(loans.full_at, |lent| lent.full_at);
            lent
        });
        let Some(lent) = lent.ok().filter(|_| !is_reply_lost) else { return };
        let taken = self.transact(from, |loans| {
            let (terms, now, usage) = (loans.terms, loans.now, loans.usage(0));
            let taken = protocol::take(&mut loans.ledger, &terms, now, usage, &Self::name(to), &lent.reply);
            loans.full_at = taken.map_or(loans.full_at, |taken| taken.full_at);
            taken
        });
        taken.expect("the labels are the same");
    }

    /// Time and region of each admitted hit, over these seconds.
    fn run(&mut self, seconds: u64) -> Vec<(u64, usize)> {
        let mut admitted = Vec::new();
        let (mut micros, mut hot) = (0, 0);
        while micros < seconds * 1_000_000 {
            micros += self.random.u64(..4_000);
            self.clock.set(Timestamp::from_micros(START * 1_000_000 + micros));
            if self.random.u16(..3_000) == 0 {
                hot = self.random.usize(..3);
            }
            let at = if self.random.u8(..4) == 0 { self.random.usize(..3) } else { hot };
            if self.hit(at) {
                admitted.push((micros, at));
            }
            match self.random.u16(..120) {
                0 => self.exchange(at, (at + 1) % 3),
                1 => self.exchange(at, (at + 2) % 3),
                // A read settles what has ended, and lets no more pass.
                2 => self.transact((at + 1) % 3, |_| ()),
                _ => {}
            }
        }
        admitted
    }
}

fn quota(limit: u32, seconds: u32) -> Quota {
    Quota { limit, window: Window::from_seconds(seconds).expect("in range") }
}

#[test]
fn regions_with_loans_keep_a_fixed_window() {
    for (seed, seconds) in (0..8).zip([1, 2, 7, 60].into_iter().cycle()) {
        let mut world = World::new(Algorithm::FixedWindow, quota(100, seconds), [20, 33, 47], seed);
        let admitted = world.run(62);
        let window = u64::from(seconds) * 1_000_000;
        let mut counts = std::collections::HashMap::<u64, u32>::new();
        for (micros, _) in &admitted {
            *counts.entry((START * 1_000_000 + micros) / window).or_default() += 1;
        }
        assert!(counts.values().all(|count| *count <= 100), "seed {seed}, {seconds} s: {counts:?}");
        let beyond = (0..3).any(|at| admitted.iter().filter(|(_, region)| *region == at).count() > 47);
        assert!(beyond, "seed {seed}");
    }
}

#[test]
fn regions_with_loans_make_no_tokens_of_a_bucket() {
    for seed in 0..9 {
        let bases = if seed % 3 == 0 { [0, 40, 60] } else { [20, 33, 47] };
        let mut world = World::new(Algorithm::TokenBucket, quota(100, 1), bases, seed);
        let admitted = world.run(25);
        // In any span at most the burst, and what refills in it: as a bucket of its own at 100 a second.
        let (mut owed, mut last) = (0_u64, 0);
        for (at, (micros, _)) in admitted.iter().enumerate() {
            owed = owed.saturating_sub(micros - last) + 10_000;
            last = *micros;
            assert!(owed <= 1_000_000, "seed {seed}, hit {at} at {micros}: {owed} µs owed");
        }
        assert!(admitted.len() > 1_500, "seed {seed}: {}", admitted.len());
    }
}
