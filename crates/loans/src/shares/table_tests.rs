//! Changes of weights, and their record.

use proptest::prelude::*;

use super::*;
use tollgate_core::algorithm::{Algorithm, Parameters, Policy};
use tollgate_core::clock::Timestamp;
use tollgate_core::quota::{Quota, Unit, Window};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// A table of these regions, as `us` has it.
fn table(generation: u64, weights: &[(&str, u32)]) -> WeightTable {
    let region = |(name, weight): &(&str, u32)| RegionWeight { name: (*name).into(), weight: *weight };
    let digest = hash_of(format!("{weights:?}").as_bytes());
    let weights = RegionWeights::new(weights.iter().map(region), "us").expect("a table");
    WeightTable { generation, digest, weights }
}

fn share(demarcation: &Demarcation, seconds: u64) -> u32 {
    let quota = Quota { limit: 100, window: Window::of(Unit::Minute) };
    let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
    demarcation.shares().share(100, &policy, || at(seconds), || 0)
}

/// Announces the active table for another region.
fn announce(demarcation: &mut Demarcation, region: &str, seconds: u64) -> bool {
    let state = demarcation.state();
    demarcation.announced(region, TableState { lowered: state.generation, ..state }, at(seconds))
}

const EVEN: [(&str, u32); 2] = [("eu", 1), ("us", 1)];
const RAISED: [(&str, u32); 2] = [("eu", 1), ("us", 3)];

#[test]
fn an_instance_that_starts_during_a_change_has_the_smaller_share_of_its_region() {
    let mut first = Demarcation::new(table(4, &EVEN));
    let record = first.take_over("", true).expect("readable").expect("a record");
    first.propose(table(5, &RAISED)).expect("newer");
    let record = first.take_over(&record, false).expect("readable").expect("another record");
    let mut started = Demarcation::new(table(5, &RAISED));
    assert_eq!(share(&started, 1_000), 75, "its file alone");
    assert_eq!(started.take_over(&record, false), Ok(None), "nothing is new to the record");
    assert_eq!((share(&started, 1_000), started.unfinished()), (50, 1));
    // The share grows where all have announced the table, and where the record has it.
    assert!(announce(&mut first, "eu", 2_000));
    let record = first.take_over(&record, false).expect("readable").expect("another record");
    started.take_over(&record, false).expect("readable");
    for instance in [&first, &started] {
        assert_eq!([share(instance, 2_075), share(instance, 2_076)], [50, 75]);
    }
}

#[test]
fn an_instance_with_an_earlier_file_keeps_to_the_tables_of_the_record() {
    let mut first = Demarcation::new(table(5, &RAISED));
    first.take_over("", true).expect("readable");
    first.propose(table(6, &[("eu", 4), ("us", 1)])).expect("newer");
    let record = first.take_over("", true).expect("readable").expect("a record");
    let mut late = Demarcation::new(table(5, &RAISED));
    assert_eq!(late.take_over(&record, false), Ok(None), "an earlier table replaces no record");
    assert_eq!(share(&late, 1_000), 20);
    late.propose(table(6, &[("eu", 4), ("us", 1)])).expect("newer");
    assert_eq!((share(&late, 1_000), late.unfinished()), (20, 1));
}

#[test]
fn a_region_without_a_record_joins_the_others_unless_its_table_is_the_first() {
    for (generation, is_running, joins) in [(1, false, false), (2, true, false), (2, false, true)] {
        let mut joining = Demarcation::new(table(generation, &EVEN));
        let record = joining.take_over("", is_running).expect("readable").expect("a record");
        assert_eq!(share(&joining, 1_000), if joins { 0 } else { 50 }, "generation {generation}");
        let mut next = Demarcation::new(table(generation, &EVEN));
        next.take_over(&record, false).expect("readable");
        assert_eq!(share(&next, 1_000), share(&joining, 1_000), "also a further instance");
        assert_eq!(announce(&mut joining, "eu", 2_000), joins);
        assert_eq!(share(&joining, 2_076), 50);
        // What the store loses later is written again.
        assert!(joining.take_over("", false).expect("readable").is_some());
        assert_eq!(share(&joining, 2_076), 50);
    }
}

#[test]
fn a_region_that_is_missing_from_the_table_is_waited_for_and_a_lost_one_is_not() {
    let all = [("ap", 1), ("eu", 1), ("us", 2)];
    let mut removed = Demarcation::new(table(1, &all));
    removed.propose(table(2, &EVEN)).expect("newer");
    assert!(!announce(&mut removed, "eu", 1_000));
    assert_eq!(removed.waiting_for().collect::<Vec<_>>(), ["ap"]);
    removed.propose(table(3, &[("ap", 0), ("eu", 1), ("us", 1)])).expect("newer");
    assert_eq!(removed.waiting_for().collect::<Vec<_>>(), ["eu"]);
    assert!(announce(&mut removed, "eu", 1_000));
    removed.propose(table(4, &EVEN)).expect("newer");
    assert_eq!(removed.waiting_for().collect::<Vec<_>>(), ["eu"], "a region without a share is removed");
}

#[test]
fn unfinished_changes_and_former_tables_are_bounded() {
    let mut demarcation = Demarcation::new(table(1, &[("eu", 1), ("us", 1)]));
    for generation in 2..18 {
        demarcation.propose(table(generation, &[("eu", 1), ("us", generation as u32)])).expect("newer");
    }
    let last = table(18, &[("eu", 1), ("us", 18)]);
    let error = demarcation.propose(last.clone()).expect_err("too many");
    assert!(error.starts_with("16 changes are unfinished"), "{error}");
    assert!(announce(&mut demarcation, "eu", 1_000));
    demarcation.propose(last).expect("newer");
    // A table is not forgotten while its hits count, however many follow it.
    for generation in 19..100 {
        demarcation.propose(table(generation, &[("eu", 1), ("us", 200 + generation as u32)])).expect("newer");
        announce(&mut demarcation, "eu", 1_000);
    }
    assert_eq!(share(&demarcation, 1_075), 50);
    assert!(share(&demarcation, 1_076) > 98);
    let record = demarcation.take_over("", true).expect("readable").expect("a record");
    assert!(record.lines().count() < 40, "{record}");
}

#[test]
fn a_record_that_is_not_one_counts_as_none() {
    for text in ["x", "1 0 - all", "1 0 - some us:1", "1 0 x all us:1", "1 0 - all us", "-1 0 - all us:1"] {
        let mut demarcation = Demarcation::new(table(2, &EVEN));
        assert!(demarcation.take_over(text, false).is_err(), "{text}");
        assert_eq!(share(&demarcation, 1_000), 0, "{text}");
    }
}

proptest! {
    /// Whatever the order in which instances load tables, start and compare with the record: no share is above that of a
    /// table that another region may still use.
    #[test]
    fn no_instance_uses_more_than_the_tables_that_may_count(
        weights in prop::collection::vec(1_u32..9, 2..12),
        steps in prop::collection::vec((0_usize..4, 0_usize..3), 1..60),
    ) {
        let of = |at: usize| table(at as u64 + 1, &[("eu", 4), ("us", weights[at])]);
        let mut instances = vec![Demarcation::new(of(0)), Demarcation::new(of(0)), Demarcation::new(of(0))];
        let (mut record, mut newest) = (String::new(), 0);
        for instance in &mut instances {
            record = instance.take_over(&record, false).expect("readable").unwrap_or(record);
        }
        for (step, at) in steps {
            match step {
                0 => newest = (newest + 1).min(weights.len() - 1),
                1 => _ = instances[at].propose(of(newest)),
                2 => instances[at] = Demarcation::new(of(newest)),
                _ => {}
            }
            if let Some(new) = instances[at].take_over(&record, false).expect("readable") {
                record = new;
            }
            // No other region has announced a table: all of those of the record may be in use.
            let known = record.lines().filter_map(|line| line.split(' ').next()?.parse::<usize>().ok());
            let least = known.map(|generation| of(generation - 1).weights.base(100, || 0));
            prop_assert!(share(&instances[at], 1_000) <= least.min().expect("a table"));
        }
    }
}
