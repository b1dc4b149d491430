//! Shares of a limit, enforced independently.

use std::num::NonZeroU32;

use super::*;

/// Hits admitted of a history by `instances` instances, each with a share of the limit.
fn admitted_apart(policy: Policy, instances: u32, history: &[(u64, Hits)]) -> u64 {
    let share = policy.shared_by(NonZeroU32::new(instances).expect("at least one"));
    let of_one: u64 = admitted(&share, history).iter().map(|(_, hits)| hits).sum();
    of_one * u64::from(instances)
}

proptest! {
    #[test]
    fn shares_together_admit_no_more_than_the_whole_unless_there_are_more_instances_than_hits(
        quota in quota(), instances in 1..=20_u32, history in history()
    ) {
        // One hit each, so that none is too large for a share.
        let history: Vec<_> = history.into_iter().map(|(at, _)| (at, Hits::ONE)).collect();
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::TokenBucket] {
            let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
            // The maximum that a bucket or a window admits during the history.
            let windows = history.last().map_or(0, |(at, _)| at / 1_000_000) / u64::from(quota.window.seconds()) + 2;
            let max_admitted = quota.limit.max(instances.into()) * windows;
            prop_assert!(admitted_apart(policy, instances, &history) <= max_admitted, "{algorithm:?}");
        }
    }
}

#[test]
fn a_share_is_the_limit_divided_but_at_least_one_hit() {
    let all_at_once = [(0, Hits::ONE); 50];
    for (limit, instances, each) in [(10, 1, 10), (10, 3, 3), (10, 10, 1), (3, 10, 1), (0, 3, 0)] {
        let quota = Quota { limit, window: Window::from_seconds(60).expect("in range") };
        for algorithm in Algorithm::ALL {
            let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
            let expected = each * u64::from(instances);
            assert_eq!(admitted_apart(policy, instances, &all_at_once), expected, "{algorithm:?} {limit}");
        }
    }
}

#[test]
fn a_shared_bucket_refills_at_its_share_of_the_rate() {
    // One token per 100 ms; for each of four instances, one per 400 ms.
    let quota = Quota { limit: 10, window: Window::from_seconds(1).expect("in range") };
    let policy = Policy::new(Algorithm::TokenBucket, quota, &Parameters::default()).expect("valid");
    let every_100_ms: Vec<_> = (0..100).map(|step| (step * 100_000, Hits::ONE)).collect();
    // Two and a half at first, and 24.75 in 9.9 s.
    assert_eq!(admitted_apart(policy, 4, &every_100_ms) / 4, 27);
}
