use super::*;
use crate::test_prelude::*;

#[test]
fn churn_does_not_grow_the_index() {
    let hasher = RandomState::default();
    let mut shard = Shard::new(500, hasher.clone());
    let record = RecordId::alone(Algorithm::FixedWindow);
    let eviction = EvictionRank::new(false, 100);
    for number in 0..100_000 {
        let cell = format!("{number}");
        let name = CounterKey::new(&hasher, cell.as_bytes(), record.as_bytes());
        shard.decide(&name, Timestamp::from_micros(0), |state| {
            *state = CounterState::Words([number, 0, 0]);
            ((), eviction)
        });
        assert_eq!(shard.inspect(&name, |state| state.clone()), CounterState::Words([number, 0, 0]));
    }
    assert_eq!((shard.len(), shard.index.len(), shard.index.num_buckets()), (500, 500, 1024));
    let held = (0..100_000_u32).filter(|number| {
        let cell = format!("{number}");
        let name = CounterKey::new(&hasher, cell.as_bytes(), record.as_bytes());
        shard.inspect(&name, |state| *state == CounterState::Words([*number, 0, 0]))
            && shard.slot(&name).is_some()
    });
    assert_eq!(held.count(), 500);
}

#[test]
fn expired_counters_are_removed_before_live_ones() {
    let hasher = RandomState::default();
    let mut shard = Shard::new(1_000, hasher.clone());
    let record = RecordId::alone(Algorithm::FixedWindow);
    let mut charge = |number: u32, exhausted, expires_at, second: u64| {
        let cell = format!("{number}");
        let name = CounterKey::new(&hasher, cell.as_bytes(), record.as_bytes());
        let now = Timestamp::from_micros(second * 1_000_000);
        shard.decide(&name, now, |state| {
            let CounterState::Words([count, ..]) = *state else {
                return (0, EvictionRank::new(exhausted, expires_at));
            };
            *state = CounterState::Words([count + 1, 0, 0]);
            (count + 1, EvictionRank::new(exhausted, expires_at))
        })
    };
    // Most counters held are exhausted and expire soon.
    for number in 0..900 {
        charge(number, true, 10, 0);
    }
    for number in 900..1_000 {
        charge(number, false, 1_000, 0);
    }
    for number in 1_000..1_900 {
        charge(number, false, 1_000, 20);
    }
    for number in 900..1_000 {
        assert_eq!(charge(number, false, 1_000, 20), 2, "a live counter was evicted");
    }
    assert_eq!(shard.evicted, 0);
}

#[test]
fn a_slot_is_one_cache_line() {
    assert_eq!(size_of::<Slot>(), 64);
}

#[test]
fn a_name_is_stored_whole_whatever_its_length() {
    let hasher = RandomState::default();
    let record = RecordId::alone(Algorithm::TokenBucket);
    for length in 0..3 * INLINE_BYTES {
        let cell = vec![b'a'; length];
        let name = CounterKey::new(&hasher, &cell, record.as_bytes());
        let stored = name.to_stored();
        assert!(name.matches(&stored) && stored.hash(&hasher) == name.hash);
        assert_eq!(matches!(stored, StoredKey::Inline { .. }), length + RecordId::LENGTH <= INLINE_BYTES);
        let longer = [&cell[..], b"a"].concat();
        assert!(!CounterKey::new(&hasher, &longer, record.as_bytes()).matches(&stored));
        let other = RecordId::alone(Algorithm::FixedWindow);
        assert!(!CounterKey::new(&hasher, &cell, other.as_bytes()).matches(&stored));
    }
}
