//! Properties of the algorithms over random histories.

mod budget;
mod calendar;
mod last_verdict;
mod prefetch;
mod share;

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::quota::{Quota, Window};
use crate::{clock::Timestamp, descriptor::Hits, lease::LeaseId};

const START: u64 = 1_700_000_000_000_000;

/// Times since the start in microseconds, in ascending order, with the hits requested then.
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
    (1..=20_u64, 1..=7_u32).prop_map(|(limit, seconds)| quota_of(limit, seconds))
}

fn quota_of(limit: u64, seconds: u32) -> Quota {
    Quota { limit, window: Window::from_seconds(seconds).expect("in range") }
}

fn burst_of(burst: u32) -> Parameters {
    Parameters { burst: Some(burst), ..Parameters::default() }
}

/// The hits admitted over a history, each with its time.
fn admitted(policy: &Policy, history: &[(u64, Hits)]) -> Vec<(u64, u64)> {
    let mut state = CounterState::default();
    let decide = |(at, hits): &(u64, Hits)| {
        let now = Timestamp::from_micros(START + at);
        let admitted = policy.apply(&mut state, now, *hits, Charging::Independent);
        admitted.then_some((*at, hits.charged()))
    };
    history.iter().filter_map(decide).collect()
}

/// Maximum number of hits in any interval shorter than `length` microseconds.
fn most_within(admitted: &[(u64, u64)], length: u64) -> u64 {
    let from = |first: usize| {
        let start = admitted[first].0;
        admitted[first..].iter().take_while(|(at, _)| at - start < length).map(|(_, hits)| hits).sum()
    };
    (0..admitted.len()).map(from).max().unwrap_or_default()
}

proptest! {
    #[test]
    fn a_window_admits_no_more_than_its_limit_between_two_edges_and_no_more_than_twice_in_any(
        quota in quota(),
        history in history(),
    ) {
        let length = u64::from(quota.window.seconds()) * 1_000_000;
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
            let admitted = admitted(&policy, &history);
            let mut windows = std::collections::HashMap::<u64, u64>::new();
            for (at, hits) in &admitted {
                *windows.entry((START + at) / length).or_default() += hits;
            }
            prop_assert!(windows.values().all(|hits| *hits <= quota.limit), "{algorithm:?}");
            prop_assert!(most_within(&admitted, length) <= 2 * quota.limit, "{algorithm:?}");
        }
    }

    #[test]
    fn a_log_admits_no_more_than_its_limit_in_any_window(
        quota in quota(),
        min_interval in prop_oneof![Just(0), 0..=1_000_000_u64],
        history in history(),
    ) {
        let min_interval = Duration::from_micros(min_interval);
        let parameters = Parameters { min_interval, ..Parameters::default() };
        let policy = Policy::new(Algorithm::SlidingWindowLog, quota, &parameters).expect("valid");
        let admitted = admitted(&policy, &history);
        let length = u64::from(quota.window.seconds()) * 1_000_000;
        prop_assert!(most_within(&admitted, length) <= quota.limit);
        for pair in admitted.windows(2) {
            prop_assert!(u128::from(pair[1].0 - pair[0].0) >= min_interval.as_micros());
        }
    }

    #[test]
    fn no_more_permits_are_held_than_the_limit(
        limit in 1..=10_u32,
        ttl in 1..=5_u64,
        steps in vec((0..=900_000_u64, 1..=3_u64, any::<bool>(), 0..40_usize), 1..200),
    ) {
        let quota = Quota { limit: limit.into(), window: Window::from_seconds(1).expect("in range") };
        let lease_ttl = Duration::from_secs(ttl);
        let parameters = Parameters { lease_ttl, ..Parameters::default() };
        let policy = Policy::new(Algorithm::Concurrency, quota, &parameters).expect("valid");
        let (mut state, mut now, mut held) = (CounterState::default(), START, Vec::<(LeaseId, u64, u64)>::new());
        for (step, amount, is_release, which) in steps {
            now += step;
            let at = Timestamp::from_micros(now);
            held.retain(|(_, since, _)| since + ttl * 1_000_000 > now);
            if is_release {
                // Of one that is held, of one that has ended, or once more of one that was released.
                let lease = held.get(which).map_or_else(LeaseId::random, |(lease, ..)| *lease);
                for _ in 0..2 {
                    policy.apply(&mut state, at, Hits::Release(lease), Charging::Independent);
                }
                held.retain(|(known, ..)| *known != lease);
            } else {
                let (lease, amount) = (LeaseId::random(), std::num::NonZeroU64::new(amount).expect("not 0"));
                let hits = Hits::Acquire { amount, lease };
                let taken: u64 = held.iter().map(|(.., amount)| amount).sum();
                let has_room = taken + amount.get() <= u64::from(limit);
                prop_assert_eq!(policy.apply(&mut state, at, hits, Charging::Independent), has_room);
                if has_room {
                    held.push((lease, now, amount.get()));
                }
            }
            let taken: u64 = held.iter().map(|(.., amount)| amount).sum();
            prop_assert!(taken <= u64::from(limit));
        }
    }

    #[test]
    fn what_is_undone_at_once_was_never_charged(
        quota in quota(),
        // Permits are released by the lease's identifier.
        algorithm in proptest::sample::select(&Algorithm::ALL[..4]),
        history in history(),
    ) {
        let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
        let (mut plain, mut undone) = (CounterState::default(), CounterState::default());
        let charging = Charging::AllOrNone;
        for (number, (at, hits)) in (0_u64..).zip(history) {
            let now = Timestamp::from_micros(START + at + 2 * number);
            policy.apply(&mut plain, now, Hits::Peek, charging);
            if policy.apply(&mut undone, now, hits, charging) {
                let verdict = policy.verdict(policy.summary(&undone, now, hits), now, hits, true, charging);
                let amount = std::num::NonZeroU64::new(hits.charged()).expect("not 0");
                policy.apply(&mut undone, now, Hits::RefundCharge { amount, made_at: verdict.decided_at }, charging);
            }
            // A bucket may be a part of a microsecond behind.
            let now = now.plus(Duration::from_micros(1));
            policy.apply(&mut plain, now, Hits::Peek, charging);
            policy.apply(&mut undone, now, Hits::Peek, charging);
            let used = |state: &CounterState| {
                policy.verdict(policy.summary(state, now, Hits::Peek), now, Hits::Peek, true, charging).used
            };
            prop_assert_eq!(used(&plain), used(&undone));
            if at % 3 == 0 {
                policy.apply(&mut plain, now, hits, charging);
                policy.apply(&mut undone, now, hits, charging);
            }
        }
    }

    #[test]
    fn a_bucket_admits_no_more_than_burst_and_rate_over_any_stretch(
        quota in quota(),
        burst in 1..=30_u32,
        history in history(),
    ) {
        let policy = Policy::new(Algorithm::TokenBucket, quota, &Parameters { burst: Some(burst), ..Parameters::default() }).expect("valid");
        let admitted = admitted(&policy, &history);
        let length = u64::from(quota.window.seconds()) * 1_000_000;
        for (first, (start, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (end, hits) in &admitted[first..] {
                sum += hits;
                // sum <= burst + limit * elapsed / length, without a fraction
                let allowed = u64::from(burst) * length + quota.limit * (end - start);
                prop_assert!(sum * length <= allowed, "{sum} hits between {start} and {end}");
            }
        }
    }

    #[test]
    fn denied_hits_pass_at_retry_after_and_not_a_microsecond_earlier(
        quota in quota(),
        algorithm in proptest::sample::select(&Algorithm::ALL[..]),
        charging in prop_oneof![Just(Charging::Independent), Just(Charging::AllOrNone)],
        history in history(),
    ) {
        let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
        let mut state = CounterState::default();
        for (at, hits) in history {
            let now = Timestamp::from_micros(START + at);
            let admitted = policy.apply(&mut state, now, hits, charging);
            let summary = policy.summary(&state, now, hits);
            let verdict = policy.verdict(summary, now, hits, admitted, charging);
            prop_assert!(verdict.remaining <= quota.limit);
            if admitted || verdict.retry_after == Duration::MAX {
                continue;
            }
            let then = now.plus(verdict.retry_after);
            let just_before = Timestamp::from_micros(then.as_micros() - 1);
            prop_assert!(!policy.apply(&mut state.clone(), just_before, hits, charging));
            prop_assert!(policy.apply(&mut state.clone(), then, hits, charging));
        }
    }

    #[test]
    fn a_bucket_that_is_drained_steadily_admits_its_rate(limit in 1..=1_000_000_u32) {
        let quota = Quota { limit: limit.into(), window: Window::from_seconds(1).expect("in range") };
        let bucket = Policy::new(Algorithm::TokenBucket, quota, &burst_of(1)).expect("valid");
        let [emission, _] = bucket.script_parameters(|| Timestamp::from_micros(START));
        // Ticks of 10 ns: at most one tick too long, never too short.
        let exact = 100_000_000_f64 / f64::from(limit);
        prop_assert!(emission as f64 >= exact && (emission as f64) < exact + 1.0);
    }
}

#[test]
fn a_burst_that_takes_years_to_refill_is_rejected() {
    let quota = quota_of(1, Window::MAX_SECONDS);
    assert!(Policy::new(Algorithm::TokenBucket, quota, &burst_of(1)).is_ok());
    assert_eq!(Policy::new(Algorithm::TokenBucket, quota, &burst_of(2)), Err(PolicyError::TooSlow));
}

#[test]
fn a_rate_that_rounding_would_change_is_rejected() {
    let bucket = |limit: u32| Policy::new(Algorithm::TokenBucket, quota_of(limit.into(), 1), &burst_of(1));
    for exact in [1_000_000, 2_000_000, 100_000_000] {
        assert!(bucket(exact).is_ok(), "{exact}");
    }
    for rounded in [60_000_000, 150_000_000, u32::MAX] {
        assert_eq!(bucket(rounded), Err(PolicyError::TooFast), "{rounded}");
    }
}

#[test]
fn twice_the_limit_passes_a_fixed_window_across_an_edge_and_no_other_algorithm() {
    let quota = quota_of(10, 60);
    let edge = 60_000_000 - START % 60_000_000;
    let history: Vec<(u64, Hits)> =
        [edge - 1, edge].into_iter().flat_map(|at| (0..10).map(move |_| (at, Hits::ONE))).collect();
    for algorithm in Algorithm::ALL {
        let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
        let expected = if algorithm == Algorithm::FixedWindow { 20 } else { 10 };
        assert_eq!(admitted(&policy, &history).len(), expected, "{}", algorithm.name());
    }
}

#[test]
fn a_fixed_window_counts_all_hits_over_its_limit_beyond_32_bits() {
    let now = Timestamp::from_micros(START);
    let over = |state: &mut CounterState, limit, hits| {
        let quota = Quota { limit, window: Window::from_seconds(60).expect("in range") };
        let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
        let (hits, charging) = (Hits::charge(hits), Charging::Independent);
        let admitted = policy.apply(state, now, hits, charging);
        let summary = policy.summary(state, now, hits);
        (admitted, policy.verdict(summary, now, hits, admitted, charging).over)
    };
    let mut state = CounterState::default();
    assert_eq!(over(&mut state, 10, 1 << 33), (false, (1 << 33) - 10));
    assert_eq!(over(&mut state, 10, 7), (false, 7));
    assert_eq!(over(&mut state, 10, 1 << 31), (false, 1 << 31));
    // The largest limit, where no hit over it has room in the state.
    let mut state = CounterState::default();
    assert_eq!(over(&mut state, u64::from(u32::MAX), u64::from(u32::MAX)), (true, 0));
    assert_eq!(over(&mut state, u64::from(u32::MAX), 5), (false, 5));
    assert_eq!(over(&mut state, u64::from(u32::MAX), 1 << 33), (false, (1 << 33) - u64::from(u32::MAX)));
}
