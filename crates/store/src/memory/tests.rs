//! The memory store through its public interface.

use std::num::NonZeroU32;

use tollgate_core::algorithm::{Reserve, Unsettled};

use super::*;
use crate::test_prelude::*;

fn request(value: &str, limit: u64, unit: Unit) -> TagRequest {
    request_of(value, check(policy(Algorithm::FixedWindow, limit, unit.seconds()), Hits::ONE))
}

fn admitted(store: &MemoryStore, request: &TagRequest) -> bool {
    store.decide(request)[0].1.admitted
}

#[test]
fn expired_counters_make_room_without_an_eviction() {
    let clock = Clock::manual(Timestamp::from_micros(1_000_000_000));
    let store = MemoryStore::new(64, clock.clone());
    for second in 0_u64..10_000 {
        clock.set(Timestamp::from_micros(1_000_000_000 + second * 1_000_000));
        assert!(admitted(&store, &request(&second.to_string(), 1, Unit::Second)));
    }
    assert_eq!(store.occupancy().evicted, 0);
    assert!(store.occupancy().counters <= 64);
}

#[test]
fn a_full_store_evicts_counters_that_do_not_deny_first() {
    let clock = Clock::manual(Timestamp::from_micros(1_000_000_000));
    let store = MemoryStore::new(64 * 32, clock);
    let exhausted: Vec<TagRequest> = (0..64).map(|at| request(&format!("busy{at}"), 1, Unit::Hour)).collect();
    for request in &exhausted {
        assert!(admitted(&store, request));
    }
    for at in 0..20_000 {
        assert!(admitted(&store, &request(&format!("idle{at}"), 100, Unit::Hour)));
    }
    let occupancy = store.occupancy();
    assert!(occupancy.counters <= 64 * 32 && occupancy.evicted > 10_000, "{occupancy:?}");
    for request in &exhausted {
        assert!(!admitted(&store, request), "an exhausted counter was evicted");
    }
}

#[test]
fn a_log_weighs_as_much_as_its_hits() {
    let clock = Clock::manual(Timestamp::from_micros(1_000_000_000));
    let store = MemoryStore::new(64 * 100, clock.clone());
    let check = check(policy(Algorithm::SlidingWindowLog, 1_000, 3_600), Hits::ONE);
    let mut now = 1_000_000_000;
    for log in 0..200 {
        let request = request_of(log, check);
        for hit in 0..400 {
            now += 1;
            clock.set(Timestamp::from_micros(now));
            let verdict = store.decide(&request)[0].1;
            assert_eq!(verdict.used, hit + 1, "the growing log was evicted");
        }
    }
    // 200 logs of 400 hits weigh 101 each, of 6,400.
    let occupancy = store.occupancy();
    assert!(occupancy.counters <= 64 && occupancy.evicted >= 136, "{occupancy:?}");
}

/// Uses counters now and then while ten times as many names as there is room for are used once each.
#[test]
fn limits_that_are_in_use_survive_a_flood_of_names() {
    let capacity = 64 * 100;
    for (limit, flood_limit) in [(1_000, 1_000), (1_000, 1)] {
        let clock = Clock::manual(Timestamp::from_micros(1_000_000_000));
        let store = MemoryStore::new(capacity, clock);
        let in_use: Vec<TagRequest> =
            (0..500).map(|at| request(&format!("in use {at}"), limit, Unit::Hour)).collect();
        let mut charged = 0_u64;
        let mut check_all = || {
            charged += 1;
            for request in &in_use {
                let used = store.decide(request)[0].1.used;
                assert_eq!(used, charged, "a counter in use was evicted");
            }
        };
        // Usage before the flood begins, as of a limit about to be reached.
        (0..20).for_each(|_| check_all());
        for name in 0..10 * capacity {
            assert!(admitted(&store, &request(&format!("flood {name}"), flood_limit, Unit::Hour)));
            // Ten times per capacity.
            if name % (capacity / 10) == 0 {
                check_all();
            }
        }
        assert!(store.occupancy().counters <= capacity);
    }
}

/// New counters that are in use after unused ones filled a store.
fn new_counters_held(capacity: usize) -> usize {
    let store = MemoryStore::new(capacity, Clock::manual(Timestamp::from_micros(1_000_000_000)));
    for name in 0..capacity {
        let request = request(&format!("old {name}"), 1_000, Unit::Month);
        (0..200).for_each(|_| assert!(admitted(&store, &request)));
    }
    let new: Vec<TagRequest> =
        (0..capacity).map(|name| request(&format!("new {name}"), 1_000, Unit::Month)).collect();
    for _ in 0..20 {
        for request in &new {
            store.decide(request);
        }
    }
    new.iter().filter(|request| store.decide(request)[0].1.used > 5).count()
}

#[test]
fn unused_limits_make_room_for_new_ones() {
    let capacity = 64 * 100;
    // Each store hashes keys to shards at random, so that a single one may be below the average.
    let held: Vec<usize> = (0..4).map(|_| new_counters_held(capacity)).collect();
    assert!(held.iter().sum::<usize>() > held.len() * capacity / 2, "{held:?} of {capacity}");
}

#[test]
fn hits_that_expired_at_a_precheck_weigh_nothing() {
    let start = 1_000_000_000_000_000;
    let policy = |algorithm, limit, seconds| {
        let quota = Quota { limit, window: Window::from_seconds(seconds).expect("in range") };
        let parameters = Parameters { lease_ttl: Duration::from_secs(1), ..Parameters::default() };
        Policy::new(algorithm, quota, &parameters).expect("valid")
    };
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::Concurrency] {
        for charging in [Charging::Independent, Charging::AllOrNone] {
            let clock = Clock::manual(Timestamp::from_micros(start));
            let store = MemoryStore::new(64 * 100, clock.clone());
            // The counters of one cell are in one shard, which holds 100 of them.
            let passes = |number: u8, policy: Policy| {
                let record = RecordId::numbered(number, policy.algorithm());
                let check = Check { record, ..check(policy, Hits::ONE) };
                admitted(&store, &TagRequest { charging, ..request_of("v", check) })
            };
            let (of_year, stored) =
                (policy(Algorithm::FixedWindow, 1, 31_000_000), policy(algorithm, 100, 1));
            for number in 1..41 {
                assert!(passes(number, of_year));
            }
            for burst in 0..20 {
                for at in 0..40 {
                    clock.set(Timestamp::from_micros(start + burst * 2_000_000 + at));
                    assert!(passes(0, stored));
                }
            }
            assert!(passes(41, of_year));
            assert_eq!(store.occupancy().evicted, 0, "{algorithm:?}, {charging:?}");
            assert!((1..41).all(|number| !passes(number, of_year)));
        }
    }
}

#[test]
fn what_an_unsettled_lease_holds_is_kept_until_the_end_of_the_window() {
    let clock = Clock::manual(Timestamp::from_micros(3_600_000_000 * 300_000));
    let store = MemoryStore::new(64 * 4_000, clock.clone());
    let quota = Quota { limit: 100, window: Window::of(Unit::Hour) };
    let ttl = NonZeroU32::new(10).expect("not 0");
    let reserve = Reserve { ttl, unsettled: Unsettled::Charge, add: 0, cap: None };
    let parameters = Parameters { reserve: Some(reserve), ..Parameters::default() };
    let policy = Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid");
    let reserve_all = |value: &str| {
        let amount = NonZeroU64::new(100).expect("not 0");
        let hits = Hits::Acquire { amount, lease: LeaseId::random() };
        TagRequest { charging: Charging::AllOrNone, ..request_of(value, check(policy, hits)) }
    };
    assert!(admitted(&store, &reserve_all("idle")));
    clock.set(clock.now().plus(Duration::from_secs(20)));
    for other in 0..10_000 {
        store.decide(&reserve_all(&other.to_string()));
    }
    assert_eq!(store.occupancy().evicted, 0);
    assert!(!admitted(&store, &reserve_all("idle")));
}
