//! Region tables, base shares and their changes.

use std::num::NonZeroU16;

use proptest::prelude::*;

use crate::{
    demarcation::{Demarcation, Refused, SPREAD_MICROS},
    table::{Region, RegionName, RegionTable, TableError},
    terms::{Kind, Moment},
};

const SECOND: u64 = 1_000_000;
const BUCKET: Kind = Kind::TokenBucket { window: 1, capacity: SECOND };

fn name(text: &str) -> RegionName {
    text.parse().expect("a name")
}

fn region(text: &str, weight: u16) -> Region {
    Region { name: name(text), weight: NonZeroU16::new(weight).expect("positive"), is_lost: false }
}

fn lost(text: &str) -> Region {
    Region { is_lost: true, ..region(text, 1) }
}

fn table(generation: u64, regions: &[Region]) -> RegionTable {
    RegionTable::new(generation, regions.to_vec()).expect("valid")
}

fn at(micros: u64) -> Moment {
    Moment { label: micros, micros }
}

#[test]
fn names_are_those_of_dns_labels() {
    for text in ["us-east", "a", "1", &"x".repeat(63)] {
        assert_eq!(name(text).as_str(), text);
    }
    for text in ["", "US", "us east", "us.east", "ü", "#", &"x".repeat(64)] {
        assert!(text.parse::<RegionName>().is_err(), "{text}");
    }
    let error = "US".parse::<RegionName>().expect_err("refused").to_string();
    assert_eq!(
        error,
        "`US` is not the name of a region; expected 1 to 63 of a-z, 0-9 and `-`, e.g. `us-east`"
    );
}

#[test]
fn tables_that_divide_nothing_are_refused() {
    assert_eq!(RegionTable::new(0, vec![region("us", 1)]), Err(TableError::NoGeneration));
    assert_eq!(RegionTable::new(1, vec![]), Err(TableError::NoShare));
    assert_eq!(RegionTable::new(1, vec![lost("us")]), Err(TableError::NoShare));
    assert_eq!(
        RegionTable::new(1, vec![region("us", 1), region("us", 2)]),
        Err(TableError::Twice(name("us")))
    );
    let many = (0..17).map(|at| region(&format!("r{at}"), 1)).collect();
    assert_eq!(RegionTable::new(1, many), Err(TableError::TooMany(17)));
}

#[test]
fn equal_generations_with_other_content_have_other_stamps() {
    let one = table(1, &[region("us", 1), region("eu", 1)]);
    assert_eq!(one.stamp(), table(1, &[region("eu", 1), region("us", 1)]).stamp());
    for other in [
        table(2, &[region("us", 1), region("eu", 1)]),
        table(1, &[region("us", 2), region("eu", 1)]),
        table(1, &[region("us", 1), lost("eu")]),
        table(1, &[region("us", 1)]),
    ] {
        assert_ne!(one.stamp(), other.stamp());
    }
}

proptest! {
    #[test]
    fn base_shares_add_up_to_the_limit(
        limit: u32,
        weights in prop::collection::vec((1_u16.., any::<bool>()), 1..=16),
        counter: [u8; 8],
    ) {
        let mut regions: Vec<_> = weights
            .iter()
            .enumerate()
            .map(|(at, (weight, is_lost))| Region { is_lost: *is_lost, ..region(&format!("r{at}"), *weight) })
            .collect();
        regions[0].is_lost = false;
        let table = table(1, &regions);
        let sum: u64 = regions.iter().map(|region| u64::from(table.base(limit, &counter, &region.name))).sum();
        prop_assert_eq!(sum, u64::from(limit));
        for region in &regions {
            let total: u64 = regions.iter().filter(|r| !r.is_lost).map(|r| u64::from(r.weight.get())).sum();
            let exact = u64::from(limit) * u64::from(region.weight.get()) / total;
            let base = u64::from(table.base(limit, &counter, &region.name));
            let is_rounded = base == exact || base == exact + 1;
            prop_assert!(if region.is_lost { base == 0 } else { is_rounded }, "{}", base);
        }
    }
}

#[test]
fn what_rounding_leaves_goes_to_all_regions_alike() {
    let regions = [region("ap", 1), region("eu", 1), region("us", 1)];
    let table = table(1, &regions);
    for region in &regions {
        let got =
            (0..9_000_u32).filter(|counter| table.base(1, &counter.to_le_bytes(), &region.name) == 1).count();
        assert!((2_800..3_200).contains(&got), "{} has {got} of 9000", region.name);
    }
}

#[test]
fn a_share_is_lowered_at_once_and_raised_when_all_have_announced() {
    let old = table(1, &[region("eu", 1), region("us", 1)]);
    let new = table(2, &[region("eu", 1), region("us", 3)]);
    let base = |region: &Demarcation, micros| region.base(100, b"", BUCKET, at(micros));
    let (mut eu, mut us) =
        (Demarcation::new(name("eu"), old.clone()), Demarcation::new(name("us"), old.clone()));
    let start = 100 * SECOND;
    eu.load(new.clone(), start, 60 * SECOND).expect("newer");
    us.load(new.clone(), start, 60 * SECOND).expect("newer");
    assert_eq!((base(&eu, start), base(&us, start)), (25, 50));
    // No announcement before all instances of a region have the table.
    assert_eq!(eu.announces(start + SPREAD_MICROS - 1), old.stamp());
    assert_eq!(eu.announces(start + SPREAD_MICROS), new.stamp());
    assert_eq!(us.missing().collect::<Vec<_>>(), [&name("eu")]);
    us.announced(&name("eu"), old.stamp(), start + SECOND);
    us.announced(&name("ap"), new.stamp(), start + SECOND);
    assert_eq!(us.missing().count(), 1);
    us.announced(&name("eu"), new.stamp(), start + 10 * SECOND);
    assert_eq!(us.missing().count(), 0);
    // A loan of the old table may last: 5 s, the margin, and the difference of clocks.
    assert_eq!(base(&us, start + 20 * SECOND), 50);
    assert_eq!(base(&us, start + 21 * SECOND), 75);
    assert_eq!(base(&eu, start + 21 * SECOND), 25);
}

#[test]
fn a_raised_share_of_a_window_begins_with_a_window() {
    let kind = Kind::FixedWindow { window: 60 };
    let old = table(1, &[region("eu", 1), region("us", 1)]);
    let mut us = Demarcation::new(name("us"), old);
    us.load(table(2, &[region("eu", 1), region("us", 3)]), SECOND, 600 * SECOND).expect("newer");
    us.announced(&name("eu"), us.newest().stamp(), 70 * SECOND);
    let base = |label: u64| us.base(100, b"", kind, Moment { label, micros: (label - 30) * SECOND });
    // Announced at 70 s: the window from 120 s begins sooner than a window later.
    assert_eq!([base(120), base(180), base(240)], [50, 50, 75]);
}

#[test]
fn a_lost_region_is_not_waited_for_and_a_removed_one_is() {
    let old = table(1, &[region("ap", 1), region("eu", 1), region("us", 1)]);
    let mut us = Demarcation::new(name("us"), old.clone());
    us.load(table(2, &[lost("ap"), region("eu", 1), region("us", 1)]), SECOND, SECOND).expect("newer");
    assert_eq!(us.missing().collect::<Vec<_>>(), [&name("eu")]);
    let mut us = Demarcation::new(name("us"), old);
    us.load(table(2, &[region("eu", 1), region("us", 1)]), SECOND, SECOND).expect("newer");
    assert_eq!(us.missing().collect::<Vec<_>>(), [&name("ap"), &name("eu")]);
}

#[test]
fn a_region_that_joins_has_no_share_until_all_have_announced() {
    let table = table(5, &[region("eu", 1), region("us", 1)]);
    let mut us = Demarcation::joining(name("us"), table.clone(), SECOND);
    let base = |us: &Demarcation, micros| us.base(100, b"", BUCKET, at(micros));
    assert_eq!(base(&us, 1_000 * SECOND), 0);
    us.announced(&name("eu"), table.stamp(), 1_000 * SECOND);
    assert_eq!([base(&us, 1_001 * SECOND), base(&us, 1_020 * SECOND)], [0, 50]);
}

#[test]
fn older_tables_and_endless_changes_are_refused() {
    let of = |generation, weight| table(generation, &[region("eu", 1), region("us", weight)]);
    let mut us = Demarcation::new(name("us"), of(3, 1));
    assert_eq!(us.load(of(3, 1), 1, 1), Ok(()));
    assert_eq!(us.load(of(3, 2), 1, 1), Err(Refused::NotNewer));
    assert_eq!(us.load(of(2, 1), 1, 1), Err(Refused::NotNewer));
    let refused = (4..100).find(|generation| us.load(of(*generation, 1), 1, SECOND).is_err());
    assert!(refused.is_some_and(|generation| generation <= 12), "{refused:?}");
}
