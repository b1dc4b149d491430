//! Regions with a memory store each, which exchange messages that get lost: all of them together keep the limit.

use std::time::Duration;

use futures_util::FutureExt as _;
use tollgate_loans::protocol::{self, Share};
use tollgate_loans::shares::{FormerWeights, RegionShares, RegionWeight, RegionWeights, WeightTable};
use tollgate_loans::{table::RegionName, terms::MAX_SKEW_MICROS};

use super::*;
use crate::{Store, test_prelude::*};

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
    fn new(algorithm: Algorithm, quota: Quota, burst: u32, bases: [u32; 3], seed: u64) -> Self {
        let clock = Clock::manual(Timestamp::from_micros(START * 1_000_000));
        let parameters = Parameters { burst: Some(burst), ..Parameters::default() };
        let whole = Policy::new(algorithm, quota, &parameters).expect("valid");
        let counter = |base: u32| {
            let share = RegionShare::new(quota, base).expect("a limit");
            SharedCounter {
                cell: cell("v"),
                record: RecordId::alone(algorithm),
                policy: share.under(whole, base),
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
        let SharedCounter { policy, share, .. } = self.counters[at];
        let check = Check { share: Some(share), ..check(policy, Hits::ONE) };
        self.stores[at].decide(&request_of("v", check))[0].1.admitted
    }

    fn transact<T: Send>(&self, at: usize, step: impl FnMut(&mut Loans) -> T + Send) -> T {
        let store = Store::new(self.stores[at].clone());
        let done = store.with_loans(&self.counters[at], Duration::ZERO, step).now_or_never();
        done.expect("at once").expect("the store runs")
    }

    /// One region requests a loan from another; each message may be lost.
    fn exchange(&mut self, from: usize, to: usize) {
        let amounts = [self.random.u32(..40), self.random.u32(..80), self.random.u32(..20)];
        let lost = [self.random.u8(..5) == 0, self.random.u8(..5) == 0];
        self.exchange_of((from, to), amounts, lost);
    }

    /// An exchange of these amounts; its request or its reply may be lost.
    fn exchange_of(
        &self,
        (from, to): (usize, usize),
        [hold, want, need]: [u32; 3],
        [is_request_lost, is_reply_lost]: [bool; 2],
    ) {
        let mut requests = self.transact(from, |loans| {
            let (terms, now, usage) = (loans.terms, loans.now, loans.usage(0));
            let shares = [Share { peer: Self::name(to), hold, want }];
            let (requests, full_at) = protocol::request_loans(&mut loans.ledger, &terms, now, usage, &shares);
            loans.full_at = full_at;
            requests
        });
        let Some((_, request)) = requests.pop().filter(|_| !is_request_lost) else { return };
        let lent = self.transact(to, |loans| {
            let (terms, now, usage) = (loans.terms, loans.now, loans.usage(need));
            let lent = protocol::lend(&mut loans.ledger, &terms, now, usage, &Self::name(from), &request);
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
            // Then the loans end before there are new ones.
            let is_quiet = micros % 15_000_000 > 5_000_000;
            match self.random.u16(..120) {
                0 if !is_quiet => self.exchange(at, (at + 1) % 3),
                1 if !is_quiet => self.exchange(at, (at + 2) % 3),
                // A read settles what has ended, and lets no more pass.
                2..=4 => self.transact((at + 1) % 3, |_| ()),
                _ => {}
            }
        }
        admitted
    }
}

fn quota(limit: u32, seconds: u32) -> Quota {
    Quota { limit: limit.into(), window: Window::from_seconds(seconds).expect("in range") }
}

#[test]
fn regions_with_loans_keep_a_fixed_window() {
    for (seed, seconds) in (0..8).zip([1, 2, 7, 60].into_iter().cycle()) {
        let mut world = World::new(Algorithm::FixedWindow, quota(100, seconds), 100, [20, 33, 47], seed);
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
        let mut world = World::new(Algorithm::TokenBucket, quota(100, 1), 100, bases, seed);
        let admitted = world.run(25);
        let times: Vec<u64> = admitted.iter().map(|(micros, _)| *micros).collect();
        assert_no_tokens_made(&times, 100, &format!("seed {seed}"));
        assert!(admitted.len() > 1_500, "seed {seed}: {}", admitted.len());
    }
}

/// Asserts that in any span no more hits were admitted than a burst and the refill of 100 a second.
fn assert_no_tokens_made(times: &[u64], burst: u64, context: &str) {
    let (mut owed, mut last) = (0_u64, 0);
    for (at, micros) in times.iter().enumerate() {
        owed = owed.saturating_sub(micros - last) + 10_000;
        last = *micros;
        assert!(owed <= burst * 10_000, "{context}, hit {at} at {micros}: {owed} µs owed");
    }
}

#[test]
fn the_end_of_a_loan_fills_no_bucket() {
    let world = World::new(Algorithm::TokenBucket, quota(100, 1), 1_000, [33, 33, 34], 0);
    let mut times = Vec::new();
    for micros in (0..26_000_000).step_by(2_500) {
        world.clock.set(Timestamp::from_micros(START * 1_000_000 + micros));
        // One region has all the traffic and all the rate for 17 s; then the loans end, and the others have the traffic.
        if micros % 1_000_000 == 0 && micros <= 12_000_000 {
            world.exchange_of((0, 1), [33, 33, 0], [false, false]);
            world.exchange_of((0, 2), [34, 34, 0], [false, false]);
        }
        let at = if micros < 18_600_000 { 0 } else { 1 + (micros / 2_500 % 2) as usize };
        if micros % 100_000 == 0 {
            world.transact(1, |_| ());
        }
        if world.hit(at) {
            times.push(micros);
        }
    }
    let early = times.iter().filter(|micros| **micros < 17_000_000).count();
    assert!(early > 2_400, "{early} hits while all was lent");
    assert_no_tokens_made(&times, 1_000, "all lent");
}

#[test]
fn a_share_grows_only_after_the_loans_of_the_former_table() {
    let weights = |own: u32, other: u32| {
        let region = |name: &str, weight| RegionWeight { name: name.into(), weight };
        RegionWeights::new([region("us", own), region("eu", other)], "us").expect("a table")
    };
    let mut random = fastrand::Rng::with_seed(7);
    for seconds in (1..=90).chain([600, 3_600]) {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
            let world = World::new(algorithm, quota(100, seconds), 100, [50, 50, 0], 0);
            let SharedCounter { policy, share, .. } = world.counters[0];
            let kind = world.counters[0].terms().kind;
            let lowered_at = START * 1_000_000 + random.u64(0..3_600_000_000);
            // The last loan begins just before, at a lender whose clock is ahead.
            let last = match kind.label_step() {
                Some(step) => {
                    let label = (lowered_at + MAX_SKEW_MICROS) / 1_000_000 / step * step + step;
                    (label + kind.booking_span()) * 1_000_000 - 1
                }
                None => lowered_at + kind.booking_span(),
            };
            let former = FormerWeights {
                table: WeightTable { generation: 1, digest: 0, weights: weights(1, 3) },
                lowered_at: Some(Timestamp::from_micros(lowered_at)),
            };
            let shares = RegionShares::new(2, weights(3, 1), vec![former]);
            let base = |now| shares.share(100, &policy, || Timestamp::from_micros(now), || 0);
            assert_eq!(share.limit.get(), 100);
            assert_eq!(base(last), 25, "{algorithm:?}, {seconds} s: a loan may count");
            assert_eq!(base(last + 4 * u64::from(seconds) * 1_000_000 + 11_000_000), 75, "{algorithm:?}");
        }
    }
}
