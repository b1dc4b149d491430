//! Windows and logs: what they admit, count and free.

use std::time::Duration;

use tollgate::{
    algorithm::{Algorithm, Parameters, Policy},
    descriptor::Hits,
    quota::{Quota, Window},
};

use super::{SECOND, limited};
use crate::support::stores::{Subject, at, call, policy};

promises!(
    a_window_admits_its_limit_and_no_more,
    a_window_counts_hits_that_it_denies,
    a_window_ends_at_its_edge,
    a_sliding_window_weights_the_previous_window,
    a_count_that_grows_large_leaves_its_neighbours_alone,
    a_log_frees_each_hit_when_a_window_has_passed,
    a_log_enforces_the_minimum_interval,
);

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
