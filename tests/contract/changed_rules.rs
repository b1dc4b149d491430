//! Counters whose rule changes: what was used stays known.

use super::*;

promises!(
    a_limit_that_changes_keeps_the_usage,
    a_window_that_changes_keeps_the_usage_until_its_next_edge,
    a_lowered_limit_denies_until_the_usage_is_below_it,
    a_window_that_is_made_longer_grants_nothing_anew,
    another_algorithm_has_a_counter_of_its_own,
    a_peek_with_a_smaller_burst_fills_no_bucket,
    a_changed_bucket_denies_no_longer_than_it_takes_to_fill,
    a_bucket_of_a_rule_is_not_filled_for_a_larger_limit_override,
    a_longer_sliding_window_counts_the_usage_of_the_shorter_one,
    a_longer_lifetime_applies_to_idle_counters,
);

async fn a_limit_that_changes_keeps_the_usage(store: &Subject) {
    let fixed = |limit| policy(Algorithm::FixedWindow, limit, 60);
    store.decide_one(at(0), "a", fixed(10), Hits::charge(8)).await;
    assert_eq!(store.decide_one(at(0), "a", fixed(20), Hits::Peek).await.remaining, 12);
    let lowered = store.decide_one(at(0), "a", fixed(5), Hits::Peek).await;
    assert_eq!((lowered.admitted, lowered.remaining), (false, 0));
    // A bucket keeps the part of it that is used.
    let bucket = |limit| policy(Algorithm::TokenBucket, limit, 60);
    store.decide_one(at(0), "b", bucket(10), Hits::charge(5)).await;
    assert_eq!(store.decide_one(at(0), "b", bucket(20), Hits::Peek).await.remaining, 10);
    assert_eq!(store.decide_one(at(0), "b", bucket(4), Hits::Peek).await.remaining, 2);
}

async fn a_window_that_changes_keeps_the_usage_until_its_next_edge(store: &Subject) {
    let fixed = |seconds| policy(Algorithm::FixedWindow, 10, seconds);
    let used = async |name, micros, seconds| {
        store.decide_one(at(micros), name, fixed(seconds), Hits::Peek).await.used
    };
    store.decide_one(at(0), "longer", fixed(60), Hits::charge(4)).await;
    assert_eq!(used("longer", 59 * SECOND, 3600).await, 4);
    store.decide_one(at(0), "shorter", fixed(3600), Hits::charge(4)).await;
    assert_eq!(used("shorter", SECOND, 60).await, 4);
    store.decide_one(at(SECOND), "shorter", fixed(60), Hits::ONE).await;
    assert_eq!(used("shorter", 119 * SECOND, 60).await, 5);
    assert_eq!(used("shorter", 120 * SECOND, 60).await, 0);
}

async fn a_lowered_limit_denies_until_the_usage_is_below_it(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let (high, low, name) = (policy(algorithm, 10, 60), policy(algorithm, 2, 60), algorithm.name());
        store.decide_one(at(0), name, high, Hits::charge(8)).await;
        let lowered = store.decide_one(at(0), name, low, Hits::ONE).await;
        // A bucket keeps the part of it that is used, and 8 of 10 are 1.6 of 2.
        assert!(!lowered.admitted && lowered.remaining == 0, "{name}: {lowered:?}");
        assert!(store.decide_one(at(0), name, high, Hits::ONE).await.admitted, "{name}");
        assert!(store.decide_one(at(180 * SECOND), name, low, Hits::ONE).await.admitted, "{name}");
    }
}

async fn a_window_that_is_made_longer_grants_nothing_anew(store: &Subject) {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingWindowLog] {
        let (short, long, name) = (policy(algorithm, 5, 60), policy(algorithm, 5, 3_600), algorithm.name());
        store.decide_one(at(SECOND), name, short, Hits::charge(5)).await;
        for second in [2, 59, 61, 600] {
            let verdict = store.decide_one(at(second * SECOND), name, long, Hits::ONE).await;
            assert!(!verdict.admitted, "{name} at {second} s");
        }
        // And back: no wait exceeds three of the short windows.
        let verdict = store.decide_one(at(601 * SECOND), name, short, Hits::ONE).await;
        assert!(verdict.retry_after <= Duration::from_secs(180), "{name}: {verdict:?}");
    }
    // A lower rate keeps the part of a bucket that is used.
    let (fast, slow) = (policy(Algorithm::TokenBucket, 5, 60), policy(Algorithm::TokenBucket, 5, 3_600));
    store.decide_one(at(0), "bucket", fast, Hits::charge(5)).await;
    let slowed = store.decide_one(at(0), "bucket", slow, Hits::ONE).await;
    assert_eq!((slowed.admitted, slowed.remaining), (true, 3), "60 s of debt are less than a token's 720 s");
}

async fn another_algorithm_has_a_counter_of_its_own(store: &Subject) {
    for (from, to) in Algorithm::ALL.into_iter().zip(Algorithm::ALL.into_iter().cycle().skip(1)) {
        let name = from.name();
        store.decide_one(at(0), name, limited(from), Hits::charge(3)).await;
        assert_eq!(store.decide_one(at(0), name, limited(to), Hits::Peek).await.used, 0);
        // Back again, what was used is known.
        assert!(!store.decide_one(at(0), name, limited(from), Hits::ONE).await.admitted, "{name}");
    }
}

async fn a_peek_with_a_smaller_burst_fills_no_bucket(store: &Subject) {
    let quota = Quota { limit: 60, window: Window::from_seconds(60).expect("in range") };
    let burst = |burst| Parameters { burst: Some(burst), ..Parameters::default() };
    let large = Policy::new(Algorithm::TokenBucket, quota, &burst(1_000)).expect("valid");
    let small = large.with_quota(quota);
    assert!(store.decide_one(at(0), "a", large, Hits::charge(900)).await.admitted);
    for hits in [Hits::Peek, Hits::ONE, Hits::refund(1)] {
        let verdict = store.decide_one(at(0), "a", small, hits).await;
        assert_eq!(verdict.remaining, 0);
    }
    assert_eq!(store.decide_one(at(0), "a", large, Hits::Peek).await.remaining, 101);
}

/// A bucket of a rule: `limit` per `seconds`, and a burst.
fn bucket(limit: u32, seconds: u32, burst: u32) -> Policy {
    let quota = Quota { limit: limit.into(), window: Window::from_seconds(seconds).expect("in range") };
    let parameters = Parameters { burst: Some(burst), ..Parameters::default() };
    Policy::new(Algorithm::TokenBucket, quota, &parameters).expect("valid")
}

async fn a_changed_bucket_denies_no_longer_than_it_takes_to_fill(store: &Subject) {
    for (name, before, after, fills_in) in [
        ("rate", bucket(100, 86_400, 100), bucket(1_000, 1, 1_000), 1),
        ("burst", bucket(60, 60, 3_600), bucket(60, 60, 5), 5),
        // Within one size.
        ("slightly", bucket(60, 60, 60), bucket(60, 60, 50), 50),
    ] {
        let burst = before.burst().expect("a bucket");
        assert!(store.decide_one(at(0), name, before, Hits::charge(burst)).await.admitted, "{name}");
        let denied = store.decide_one(at(0), name, after, Hits::ONE).await;
        assert!(
            !denied.admitted && denied.retry_after <= Duration::from_secs(fills_in),
            "{name}: {denied:?}"
        );
        assert_eq!(denied.reset_after, Duration::from_secs(fills_in), "{name}");
        let full = store.decide_one(at(fills_in * SECOND), name, after, Hits::Peek).await;
        assert_eq!(full.remaining, after.burst().expect("a bucket"), "{name}");
    }
}

async fn a_bucket_of_a_rule_is_not_filled_for_a_larger_limit_override(store: &Subject) {
    let small = bucket(60, 60, 5);
    let quota = Quota { limit: 60, window: Window::from_seconds(60).expect("in range") };
    let large = small.with_quota(quota);
    assert!(store.decide_one(at(0), "a", large, Hits::charge(60)).await.admitted);
    for hits in [Hits::Peek, Hits::ONE, Hits::charge(5)] {
        assert_eq!(store.decide_one(at(0), "a", small, hits).await.remaining, 0);
    }
    assert_eq!(store.decide_one(at(10 * SECOND), "a", large, Hits::Peek).await.remaining, 10);
    assert!(store.decide_one(at(60 * SECOND), "a", small, Hits::charge(5)).await.admitted, "paid");
}

async fn a_longer_sliding_window_counts_the_usage_of_the_shorter_one(store: &Subject) {
    // Windows of both lengths end at the same time, or usage of the former window counts in part.
    const START: u64 = 1_200;
    for (from, to, charged_at, changed_at) in [
        (10, 60, 45, 46),
        (10, 60, 45, 51),
        (20, 40, 19, 21),
        (20, 40, 39, 45),
        (40, 60, 115, 116),
        (1, 60, 59, 59),
    ] {
        let [charged_at, changed_at] = [charged_at, changed_at].map(|second| START + second);
        let (short, stated) =
            (policy(Algorithm::SlidingWindow, 100, from), policy(Algorithm::SlidingWindow, 100, to));
        let long = stated.succeeding(&short, at(changed_at * SECOND));
        let name = format!("{from} to {to} at {changed_at}");
        for (micros, hits) in [(charged_at * SECOND - u64::from(from) * SECOND, 1), (charged_at * SECOND, 90)]
        {
            assert!(store.decide_one(at(micros), &name, short, Hits::charge(hits)).await.admitted, "{name}");
        }
        let mut passed = 90;
        let end = changed_at - changed_at % u64::from(to) + u64::from(to);
        for second in changed_at..end {
            while store.decide_one(at(second * SECOND), &name, long, Hits::ONE).await.admitted {
                passed += 1;
            }
        }
        // Those of a window of the longer length before this one may count in part.
        let most = if charged_at < end - u64::from(to) { 190 } else { 100 };
        assert!(passed <= most, "{name}: {passed}");
    }
}

async fn a_longer_lifetime_applies_to_idle_counters(store: &Subject) {
    let lease_ttl = |seconds| {
        let quota = Quota { limit: 3, window: Window::from_seconds(1).expect("in range") };
        let parameters = Parameters { lease_ttl: Duration::from_secs(seconds), ..Parameters::default() };
        Policy::new(Algorithm::Concurrency, quota, &parameters).expect("valid")
    };
    let log = |seconds| policy(Algorithm::SlidingWindowLog, 3, seconds);
    for (name, short, long) in [("log", log(10), log(60)), ("leases", lease_ttl(10), lease_ttl(60))] {
        assert!(store.decide_one(at(0), name, short, Hits::charge(3)).await.admitted, "{name}");
        for second in [11, 59] {
            assert!(!store.decide_one(at(second * SECOND), name, long, Hits::ONE).await.admitted, "{name}");
        }
        assert!(store.decide_one(at(60 * SECOND), name, long, Hits::ONE).await.admitted, "{name}");
    }
}
