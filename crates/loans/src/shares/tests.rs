//! Shares of regions against their whole.

use std::{num::NonZeroU64, time::Duration};

use proptest::prelude::*;

use super::*;
use tollgate_core::algorithm::{Algorithm, Charging, CounterState, Parameters, Policy};
use tollgate_core::quota::{Quota, Unit, Window};
use tollgate_core::{clock::Timestamp, descriptor::Hits};

fn table(weights: &[u32], own: usize) -> RegionWeights {
    let name = |at: usize| format!("region-{at}").into_boxed_str();
    let regions =
        weights.iter().enumerate().map(|(at, weight)| RegionWeight { name: name(at), weight: *weight });
    RegionWeights::new(regions, &name(own)).expect("a table")
}

fn policy(algorithm: Algorithm, limit: u32, unit: Unit, burst: Option<u32>) -> Policy {
    let parameters = Parameters { burst, ..Parameters::default() };
    Policy::nearest(algorithm, Quota { limit: limit.into(), window: Window::of(unit) }, &parameters)
}

#[test]
fn a_limit_is_divided_by_weight_and_what_is_left_goes_to_different_regions() {
    let bases = |limit, counter| [0, 1, 2].map(|own| table(&[2, 1, 1], own).base(limit, || counter));
    assert_eq!(bases(100, 1), [50, 25, 25]);
    let given: Vec<_> = (0..64).map(|counter| bases(1, hash_of(&[counter]))).collect();
    for first in [[1, 0, 0], [0, 1, 0], [0, 0, 1]] {
        assert!(given.contains(&first), "{first:?}");
    }
    assert_eq!(table(&[1, 0], 1).base(100, || 0), 0, "a lost region has no share");
    assert!(RegionWeights::new([], "region-0").is_none());
}

#[test]
fn the_order_of_regions_is_that_of_every_version() {
    let first: Vec<u32> =
        (0..8).map(|counter| table(&[1, 1, 1], 0).base(1, || hash_of(&[counter]))).collect();
    assert_eq!(first, ORDER);
}

const ORDER: [u32; 8] = [0, 0, 1, 0, 0, 1, 0, 1];

#[test]
fn a_share_grows_only_after_every_region_has_lowered_its_own_and_a_tail() {
    let (former, weights) = (table(&[1, 3], 0), table(&[3, 1], 0));
    let policy = policy(Algorithm::FixedWindow, 100, Unit::Minute, None);
    let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
    let share = |lowered_at, now| {
        let table = WeightTable { generation: 1, digest: 0, weights: former.clone() };
        let shares = RegionShares::new(2, weights.clone(), vec![FormerWeights { table, lowered_at }]);
        shares.share(100, &policy, || at(now), || 0)
    };
    assert_eq!(share(None, 1_000), 25);
    assert_eq!(share(Some(at(1_000)), 1_075), 25, "hits of the window in which it was lowered may count");
    assert_eq!(share(Some(at(1_000)), 1_076), 75);
    let raised = WeightTable { generation: 1, digest: 0, weights: weights.clone() };
    let raised = vec![FormerWeights { table: raised, lowered_at: None }];
    let lowered = RegionShares::new(2, former.clone(), raised);
    assert_eq!(lowered.share(100, &policy, || at(0), || 0), 25, "a smaller share applies at once");
}

proptest! {
    #[test]
    fn bases_add_up_to_the_limit(
        weights in prop::collection::vec(0_u32..=1000, 1..=MAX_REGIONS),
        limit in prop_oneof![0_u32..100, any::<u32>()],
        counter in any::<u64>(),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let sum: u64 = (0..weights.len()).map(|own| u64::from(table(&weights, own).base(limit, || counter))).sum();
        prop_assert_eq!(sum, u64::from(limit));
    }

    /// Every region gets requests for as much as it admits; together they admit no more than one counter would.
    #[test]
    fn the_shares_of_a_bucket_admit_no_more_than_the_bucket(
        weights in prop::collection::vec(1_u32..=5, 2..=5),
        limit in 1_u32..500,
        burst in 1_u32..500,
        steps in prop::collection::vec((0_u64..3_000_000, 0_usize..5, 1_u64..50), 1..200),
    ) {
        let whole = policy(Algorithm::TokenBucket, limit, Unit::Second, Some(burst));
        let shares: Vec<Policy> = (0..weights.len())
            .map(|own| whole.region_share(table(&weights, own).base(limit, || 7), limit))
            .collect();
        let mut states = vec![CounterState::default(); weights.len()];
        let begin = 1_000_000_000_u64;
        let (mut now, mut admitted) = (begin, 0_u64);
        for (pause, region, hits) in steps {
            now += pause;
            let region = region % weights.len();
            let charge = Hits::Charge(NonZeroU64::new(hits).expect("positive"));
            let passes =
                shares[region].apply(&mut states[region], Timestamp::from_micros(now), charge, Charging::Independent);
            admitted += if passes { hits } else { 0 };
            let refilled = (now - begin) * u64::from(limit) / 1_000_000 + 1;
            prop_assert!(admitted <= u64::from(burst) + refilled, "{admitted} hits");
        }
    }

    #[test]
    fn shares_of_other_algorithms_add_up(
        weights in prop::collection::vec(1_u32..=5, 2..=5), limit in 0_u32..10_000, counter in any::<u64>(),
    ) {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingWindowLog, Algorithm::Concurrency] {
            let whole = policy(algorithm, limit, Unit::Minute, None);
            let share = |own| whole.region_share(table(&weights, own).base(limit, || counter), limit).limit();
            prop_assert_eq!((0..weights.len()).map(share).sum::<u64>(), u64::from(limit));
        }
    }
}

#[test]
fn a_share_of_a_carry_is_in_proportion() {
    let parameters = Parameters { overdraft: true, carry: true, max_debt: Some(90), ..Parameters::default() };
    let quota = Quota { limit: 60, window: Window::of(Unit::Minute) };
    let whole = Policy::nearest(Algorithm::FixedWindow, quota, &parameters);
    let share = whole.region_share(20, 60);
    assert_eq!((share.limit(), share.max_debt()), (20, Some(30)));
    assert_eq!(share.tail(), Duration::from_secs(185));
    assert_eq!(whole.region_share(0, 60).limit(), 0);
}
