//! Windows, logs and buckets: what they admit, count and free, also when a clock steps back or is put right.

use super::*;

promises! {
    a_window_admits_its_limit_and_no_more,
    a_window_counts_hits_that_it_denies,
    a_window_ends_at_its_edge,
    a_sliding_window_weights_the_previous_window,
    a_count_that_grows_large_leaves_its_neighbours_alone,
    a_log_frees_each_hit_when_a_window_has_passed,
    a_log_enforces_the_minimum_interval,
    a_bucket_admits_its_burst_at_once_then_its_rate,
    a_bucket_admits_at_retry_after_and_not_a_microsecond_earlier,
    a_bucket_does_not_count_hits_that_it_denies,
    a_clock_that_steps_back_grants_nothing_twice,
    a_clock_that_is_put_right_grants_nothing_twice,
}

async fn a_window_admits_its_limit_and_no_more(store: &Subject) {
    for remaining in [2, 1, 0] {
        let verdict = store.decide_one(at(0), "a", limited(Algorithm::FixedWindow), Hits::ONE).await;
        assert!(verdict.admitted);
        assert_eq!(verdict.remaining, remaining);
    }
    let denied = store.decide_one(at(20 * SECOND), "a", limited(Algorithm::FixedWindow), Hits::ONE).await;
    assert!(!denied.admitted);
    assert_eq!((denied.remaining, denied.retry_after.as_secs()), (0, 40));
}

async fn a_window_counts_hits_that_it_denies(store: &Subject) {
    let policy = limited(Algorithm::FixedWindow);
    store.decide_one(at(0), "a", policy, Hits::charge(4)).await;
    let refunded = store.decide_one(at(0), "a", policy, Hits::refund(1)).await;
    assert!(refunded.admitted);
    assert_eq!(refunded.remaining, 0);
    assert!(!store.decide_one(at(0), "a", policy, Hits::ONE).await.admitted);
}

async fn a_window_ends_at_its_edge(store: &Subject) {
    let policy = limited(Algorithm::FixedWindow);
    store.decide_one(at(59 * SECOND), "a", policy, Hits::charge(3)).await;
    assert!(!store.decide_one(at(60 * SECOND - 1), "a", policy, Hits::ONE).await.admitted);
    let next = store.decide_one(at(60 * SECOND), "a", policy, Hits::ONE).await;
    assert!(next.admitted);
    assert_eq!((next.remaining, next.reset_after.as_secs()), (2, 60));
}

async fn a_sliding_window_weights_the_previous_window(store: &Subject) {
    let policy = policy(Algorithm::SlidingWindow, 10, 60);
    store.decide_one(at(59 * SECOND), "a", policy, Hits::charge(10)).await;
    let used = async |micros| store.decide_one(at(micros), "a", policy, Hits::Peek).await.used;
    for (tenth, left) in [(600, 10), (601, 9), (660, 9), (661, 8), (900, 5)] {
        assert_eq!(used(tenth * SECOND / 10).await, left, "at {tenth} tenths of a second");
    }
    assert!(store.decide_one(at(90 * SECOND), "a", policy, Hits::charge(5)).await.admitted);
    assert!(!store.decide_one(at(90 * SECOND), "a", policy, Hits::ONE).await.admitted);
    for (second, left) in [(114, 6), (119, 5), (120, 5), (150, 2), (180, 0)] {
        assert_eq!(used(second * SECOND).await, left, "at {second} s");
    }
}

async fn a_count_that_grows_large_leaves_its_neighbours_alone(store: &Subject) {
    let sliding = policy(Algorithm::SlidingWindow, 1_000_000, 60);
    let fixed = policy(Algorithm::FixedWindow, 1_000_000, 60);
    let request = |hits: [u64; 4]| {
        let [a, b, c, d] = hits.map(Hits::charge);
        call("a", &[(1, sliding, a), (2, fixed, b), (3, sliding, c), (4, sliding, d)])
    };
    let used = async |micros, hits| {
        let verdicts = store.decide(at(micros), &request(hits)).await;
        verdicts.iter().map(|verdict| verdict.used).collect::<Vec<_>>()
    };
    assert_eq!(used(0, [65_535, 2, 3, 4]).await, [65_535, 2, 3, 4]);
    assert_eq!(used(1, [1, 1, 1, 70_000]).await, [65_536, 3, 4, 70_004]);
    assert_eq!(used(2, [1, 1, 65_532, 1]).await, [65_537, 4, 65_536, 70_005]);
    assert_eq!(used(3, [0; 4]).await, [65_537, 4, 65_536, 70_005]);
    // Half of the next window later.
    assert_eq!(used(90 * SECOND, [1; 4]).await, [32_769, 1, 32_769, 35_003]);
}

async fn a_log_frees_each_hit_when_a_window_has_passed(store: &Subject) {
    let policy = limited(Algorithm::SlidingWindowLog);
    for second in [0, 10, 50] {
        assert!(store.decide_one(at(second * SECOND), "a", policy, Hits::ONE).await.admitted);
    }
    for (second, passes) in [(59, false), (60, true), (69, false), (70, true), (109, false), (110, true)] {
        let verdict = store.decide_one(at(second * SECOND), "a", policy, Hits::ONE).await;
        assert_eq!(verdict.admitted, passes, "at {second} s");
    }
    let two = store.decide_one(at(111 * SECOND), "a", policy, Hits::charge(2)).await;
    assert_eq!((two.admitted, two.retry_after.as_secs()), (false, 19), "hits of 60, 70 and 110 s");
}

async fn a_log_enforces_the_minimum_interval(store: &Subject) {
    let quota = Quota { limit: 100, window: Window::from_seconds(60).expect("in range") };
    let parameters = Parameters { min_interval: Duration::from_millis(50), ..Parameters::default() };
    let policy = Policy::new(Algorithm::SlidingWindowLog, quota, &parameters).expect("valid");
    assert!(store.decide_one(at(0), "a", policy, Hits::charge(10)).await.admitted);
    let early = store.decide_one(at(49_999), "a", policy, Hits::ONE).await;
    assert_eq!((early.admitted, early.remaining, early.retry_after.as_micros()), (false, 90, 1));
    assert!(store.decide_one(at(49_999), "a", policy, Hits::Peek).await.admitted);
    assert!(store.decide_one(at(50_000), "a", policy, Hits::ONE).await.admitted);
}

async fn a_bucket_admits_its_burst_at_once_then_its_rate(store: &Subject) {
    let quota = Quota { limit: 60, window: Window::from_seconds(60).expect("in range") };
    let policy =
        Policy::new(Algorithm::TokenBucket, quota, &Parameters { burst: Some(5), ..Parameters::default() })
            .expect("valid");
    for remaining in (0..5).rev() {
        let verdict = store.decide_one(at(0), "a", policy, Hits::ONE).await;
        assert!(verdict.admitted);
        assert_eq!(verdict.remaining, remaining);
    }
    assert!(!store.decide_one(at(0), "a", policy, Hits::ONE).await.admitted);
    for second in 1..10 {
        assert!(store.decide_one(at(second * SECOND), "a", policy, Hits::ONE).await.admitted);
        assert!(!store.decide_one(at(second * SECOND + 1), "a", policy, Hits::ONE).await.admitted);
    }
}

async fn a_bucket_admits_at_retry_after_and_not_a_microsecond_earlier(store: &Subject) {
    // 7 per minute: an interval that is no whole number of microseconds.
    let policy = policy(Algorithm::TokenBucket, 7, 60);
    let mut now = 123;
    for _ in 0..20 {
        while store.decide_one(at(now), "a", policy, Hits::ONE).await.admitted {}
        let denied = store.decide_one(at(now), "a", policy, Hits::ONE).await;
        let wait = u64::try_from(denied.retry_after.as_micros()).expect("short");
        assert!(!store.decide_one(at(now + wait - 1), "a", policy, Hits::ONE).await.admitted);
        now += wait;
        assert!(store.decide_one(at(now), "a", policy, Hits::ONE).await.admitted);
    }
}

async fn a_bucket_does_not_count_hits_that_it_denies(store: &Subject) {
    let policy = limited(Algorithm::TokenBucket);
    store.decide_one(at(0), "a", policy, Hits::charge(3)).await;
    let first = store.decide_one(at(0), "a", policy, Hits::ONE).await;
    for _ in 0..10 {
        assert_eq!(store.decide_one(at(0), "a", policy, Hits::ONE).await, first);
    }
    assert_eq!(first.retry_after.as_secs(), 20);
}

async fn a_clock_that_steps_back_grants_nothing_twice(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(61 * SECOND), "a", policy, Hits::charge(3)).await;
        assert!(!store.decide_one(at(59 * SECOND), "a", policy, Hits::ONE).await.admitted);
        assert!(!store.decide_one(at(61 * SECOND), "a", policy, Hits::ONE).await.admitted);
        // Nor does a clock that was hours ahead keep anyone waiting for hours.
        store.decide_one(at(7200 * SECOND), "b", policy, Hits::charge(3)).await;
        assert!(!store.decide_one(at(0), "b", policy, Hits::ONE).await.admitted);
        assert!(store.decide_one(at(121 * SECOND), "b", policy, Hits::ONE).await.admitted);
    }
}

async fn a_clock_that_is_put_right_grants_nothing_twice(store: &Subject) {
    const DAY: u64 = 86_400 * SECOND;
    let quota = Quota { limit: 10, window: Window::from_seconds(86_400).expect("in range") };
    let parameters = Parameters { lease_ttl: Duration::from_secs(86_400), ..Parameters::default() };
    for algorithm in Algorithm::ALL {
        let (name, policy) = (algorithm.name(), Policy::new(algorithm, quota, &parameters).expect("valid"));
        let right = 30 * DAY;
        let decide = async |micros, hits| store.decide_one(at(micros), name, policy, hits).await;
        assert!(decide(right, Hits::charge(8)).await.admitted, "{name}");
        // What passes meanwhile counts too; a bucket that is full later than it may be admits nothing.
        let meanwhile = if algorithm == Algorithm::TokenBucket { right } else { right - 3 * DAY };
        assert!(decide(meanwhile, Hits::charge(2)).await.admitted, "{name}");
        for (micros, hits) in [
            (right - 3 * DAY, Hits::ONE),
            (right - 3 * DAY + SECOND, Hits::Peek),
            (right + SECOND, Hits::ONE),
            (right - 2 * DAY, Hits::ONE),
            (right + 2 * SECOND, Hits::ONE),
        ] {
            let verdict = decide(micros, hits).await;
            assert!(hits == Hits::Peek || !verdict.admitted, "{name} at {micros}: {verdict:?}");
            assert_eq!(verdict.remaining, 0, "{name} at {micros}");
        }
    }
}
