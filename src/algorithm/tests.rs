//! Properties that hold for every history.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    clock::Timestamp,
    quota::{Quota, Window},
};

const START: u64 = 1_700_000_000_000_000;

/// Times since the start in microseconds, in order, with the hits asked then.
fn history() -> impl Strategy<Value = Vec<(u64, Hits)>> {
    let step = prop_oneof![3 => Just(0), 3 => 0..=400_000_u64, 1 => 0..=5_000_000_u64];
    vec((step, (1..=3_u64).prop_map(Hits::charge)), 1..200).prop_map(|steps| {
        let mut now = 0;
        let at = |(step, hits)| {
            now += step;
            (now, hits)
        };
        steps.into_iter().map(at).collect()
    })
}

fn quota() -> impl Strategy<Value = Quota> {
    (1..=20_u32, 1..=7_u32).prop_map(|(limit, seconds)| Quota {
        limit,
        window: Window::from_seconds(seconds).expect("in range"),
    })
}

/// The hits admitted over a history, each with its time.
fn admitted(policy: &Policy, history: &[(u64, Hits)]) -> Vec<(u64, u64)> {
    let mut state = Words::default();
    let decide = |(at, hits): &(u64, Hits)| {
        let admitted = policy.apply(&mut state, Timestamp::from_micros(START + at), *hits);
        admitted.then_some((*at, hits.charged()))
    };
    history.iter().filter_map(decide).collect()
}

proptest! {
    #[test]
    fn a_fixed_window_admits_no_more_than_its_limit_between_two_edges(quota in quota(), history in history()) {
        let policy = Policy::new(Algorithm::FixedWindow, quota, None).expect("valid");
        let length = u64::from(quota.window.seconds()) * 1_000_000;
        let mut windows = std::collections::HashMap::<u64, u64>::new();
        for (at, hits) in admitted(&policy, &history) {
            *windows.entry((START + at) / length).or_default() += hits;
        }
        prop_assert!(windows.values().all(|hits| *hits <= u64::from(quota.limit)));
    }

    #[test]
    fn a_bucket_admits_no_more_than_burst_and_rate_over_any_stretch(
        quota in quota(),
        burst in 1..=30_u32,
        history in history(),
    ) {
        let policy = Policy::new(Algorithm::TokenBucket, quota, Some(burst)).expect("valid");
        let admitted = admitted(&policy, &history);
        let length = u64::from(quota.window.seconds()) * 1_000_000;
        for (first, (start, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (end, hits) in &admitted[first..] {
                sum += hits;
                // sum <= burst + limit * elapsed / length, without a fraction
                let allowed = u64::from(burst) * length + u64::from(quota.limit) * (end - start);
                prop_assert!(sum * length <= allowed, "{sum} hits between {start} and {end}");
            }
        }
    }

    #[test]
    fn what_is_denied_passes_at_retry_after_and_not_a_microsecond_earlier(
        quota in quota(),
        algorithm in prop_oneof![Just(Algorithm::FixedWindow), Just(Algorithm::TokenBucket)],
        history in history(),
    ) {
        let policy = Policy::new(algorithm, quota, None).expect("valid");
        let mut state = Words::default();
        for (at, hits) in history {
            let now = Timestamp::from_micros(START + at);
            let admitted = policy.apply(&mut state, now, hits);
            let verdict = policy.verdict(state, now, hits, admitted);
            prop_assert!(verdict.remaining <= quota.limit);
            if admitted || verdict.retry_after == Duration::MAX {
                continue;
            }
            let then = now.plus(verdict.retry_after);
            let mut early = state;
            let just_before = Timestamp::from_micros(then.as_micros() - 1);
            prop_assert!(!policy.apply(&mut early, just_before, hits));
            let mut later = state;
            prop_assert!(policy.apply(&mut later, then, hits));
        }
    }

    #[test]
    fn a_bucket_that_is_drained_steadily_admits_its_rate(limit in 1..=1_000_000_u32) {
        let quota = Quota { limit, window: Window::from_seconds(1).expect("in range") };
        let bucket = TokenBucket::new(quota, 1).expect("valid");
        let [emission, _] = bucket.script_parameters();
        // Ticks of 10 ns: at most one tick too long, never too short.
        let exact = 100_000_000_f64 / f64::from(limit);
        prop_assert!(emission as f64 >= exact && (emission as f64) < exact + 1.0);
    }
}

#[test]
fn a_burst_that_takes_years_to_refill_is_refused() {
    let quota = Quota { limit: 1, window: Window::from_seconds(Window::MAX_SECONDS).expect("in range") };
    assert!(TokenBucket::new(quota, 1).is_ok());
    assert_eq!(TokenBucket::new(quota, 2), Err(token_bucket::OutOfRange::TooSlow));
}

#[test]
fn a_rate_that_rounding_would_change_is_refused() {
    let per_second = |limit| Quota { limit, window: Window::from_seconds(1).expect("in range") };
    for exact in [1_000_000, 2_000_000, 100_000_000] {
        assert!(TokenBucket::new(per_second(exact), 1).is_ok(), "{exact}");
    }
    for rounded in [60_000_000, 150_000_000, u32::MAX] {
        assert_eq!(
            TokenBucket::new(per_second(rounded), 1),
            Err(token_bucket::OutOfRange::TooFast),
            "{rounded}"
        );
    }
}

#[test]
fn twice_the_limit_passes_a_fixed_window_across_an_edge_but_not_a_bucket() {
    let quota = Quota { limit: 10, window: Window::from_seconds(60).expect("in range") };
    let edge = 60_000_000 - START % 60_000_000;
    let history: Vec<(u64, Hits)> =
        [edge - 1, edge].into_iter().flat_map(|at| (0..10).map(move |_| (at, Hits::ONE))).collect();
    let count = |algorithm| admitted(&Policy::new(algorithm, quota, None).expect("valid"), &history).len();
    assert_eq!(count(Algorithm::FixedWindow), 20);
    assert_eq!(count(Algorithm::TokenBucket), 10);
}
