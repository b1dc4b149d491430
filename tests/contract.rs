//! What every store promises, run against each of them.

use tollgate::{
    algorithm::{Algorithm, Policy},
    descriptor::Hits,
    quota::{Quota, Window},
};

use crate::support::{
    redis::Redis,
    stores::{Subject, at, call, policy},
};

const SECOND: u64 = 1_000_000;

/// Runs one promise against every store.
macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(&super::Subject::memory()).await; })+
        }
        mod redis {
            $(#[tokio::test] async fn $name() {
                let redis = super::Redis::start();
                super::$name(&super::Subject::Redis(redis.store())).await;
            })+
        }
        // Each promise has keys of its own on servers that all of them share.
        mod sentinel {
            $(#[tokio::test] async fn $name() {
                let store = crate::support::sentinel::shared().store(stringify!($name));
                super::$name(&super::Subject::Redis(store)).await;
            })+
        }
        mod cluster {
            $(#[tokio::test] async fn $name() {
                let store = crate::support::cluster::shared().store(stringify!($name));
                super::$name(&super::Subject::Redis(store)).await;
            })+
        }
    };
}

promises!(
    a_window_admits_its_limit_and_no_more,
    a_window_counts_hits_that_it_denies,
    a_window_ends_at_its_edge,
    a_bucket_admits_its_burst_at_once_then_its_rate,
    a_bucket_admits_at_retry_after_and_not_a_microsecond_earlier,
    a_bucket_does_not_count_hits_that_it_denies,
    a_look_charges_nothing,
    a_refund_gives_back_and_never_below_zero,
    more_hits_than_the_limit_never_pass,
    a_limit_of_zero_denies_every_hit,
    counters_of_one_tag_are_apart,
    one_counter_asked_twice_in_a_call_is_charged_twice,
    a_limit_that_changes_keeps_the_usage,
    a_window_that_changes_keeps_the_usage_until_its_next_edge,
    a_clock_that_steps_back_grants_nothing_twice,
    amounts_beyond_any_limit_are_exact_enough,
);

fn limited(algorithm: Algorithm) -> Policy {
    policy(algorithm, 3, 60)
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

async fn a_bucket_admits_its_burst_at_once_then_its_rate(store: &Subject) {
    let quota = Quota { limit: 60, window: Window::from_seconds(60).expect("in range") };
    let policy = Policy::new(Algorithm::TokenBucket, quota, Some(5)).expect("valid");
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

async fn a_look_charges_nothing(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(0), "a", policy, Hits::charge(2)).await;
        for _ in 0..5 {
            let look = store.decide_one(at(0), "a", policy, Hits::Peek).await;
            assert!(look.admitted);
            assert_eq!(look.remaining, 1);
        }
        assert_eq!(store.decide_one(at(0), "unused", policy, Hits::Peek).await.remaining, 3);
    }
}

async fn a_refund_gives_back_and_never_below_zero(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(0), "a", policy, Hits::charge(3)).await;
        let refunded = store.decide_one(at(0), "a", policy, Hits::refund(2)).await;
        assert!(refunded.admitted);
        assert_eq!(refunded.remaining, 2);
        let emptied = store.decide_one(at(0), "a", policy, Hits::refund(1_000_000)).await;
        assert_eq!((emptied.remaining, emptied.used), (3, 0));
        assert_eq!(store.decide_one(at(0), "a", policy, Hits::ONE).await.remaining, 2);
        assert_eq!(store.decide_one(at(0), "unused", policy, Hits::refund(1)).await.remaining, 3);
    }
}

async fn more_hits_than_the_limit_never_pass(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let verdict = store.decide_one(at(0), "a", limited(algorithm), Hits::charge(4)).await;
        assert!(!verdict.admitted);
        assert_eq!(verdict.retry_after, std::time::Duration::MAX);
    }
}

async fn a_limit_of_zero_denies_every_hit(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = policy(algorithm, 0, 60);
        let verdict = store.decide_one(at(0), "a", policy, Hits::ONE).await;
        assert!(!verdict.admitted);
        assert_eq!(verdict.remaining, 0);
        assert!(store.decide_one(at(0), "unused", policy, Hits::Peek).await.admitted);
    }
}

async fn counters_of_one_tag_are_apart(store: &Subject) {
    let (window, bucket) = (limited(Algorithm::FixedWindow), limited(Algorithm::TokenBucket));
    let asks = [(1, window, Hits::charge(3)), (2, window, Hits::ONE), (1, bucket, Hits::charge(2))];
    let remaining = |verdicts: Vec<tollgate::algorithm::Verdict>| -> Vec<u32> {
        verdicts.into_iter().map(|verdict| verdict.remaining).collect()
    };
    assert_eq!(remaining(store.decide(at(0), &call("a", &asks)).await), [0, 2, 1]);
    // Some of them, in another order, and a new one.
    let asks = [(1, bucket, Hits::Peek), (3, window, Hits::ONE), (1, window, Hits::Peek)];
    assert_eq!(remaining(store.decide(at(0), &call("a", &asks)).await), [1, 2, 0]);
    assert_eq!(remaining(store.decide(at(0), &call("b", &[(1, window, Hits::ONE)])).await), [2]);
}

async fn one_counter_asked_twice_in_a_call_is_charged_twice(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let ask = (1, limited(algorithm), Hits::charge(2));
        let verdicts = store.decide(at(0), &call("a", &[ask, ask])).await;
        assert_eq!((verdicts[0].admitted, verdicts[1].admitted), (true, false));
    }
}

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

async fn amounts_beyond_any_limit_are_exact_enough(store: &Subject) {
    let policy = policy(Algorithm::FixedWindow, u32::MAX, 60);
    assert_eq!(store.decide_one(at(0), "a", policy, Hits::charge(u64::from(u32::MAX))).await.remaining, 0);
    assert!(!store.decide_one(at(0), "a", policy, Hits::ONE).await.admitted);
    assert!(!store.decide_one(at(0), "a", policy, Hits::charge(u64::MAX)).await.admitted);
    let bucket = crate::support::stores::policy(Algorithm::TokenBucket, u32::MAX, Window::MAX_SECONDS);
    assert!(store.decide_one(at(0), "b", bucket, Hits::charge(u64::from(u32::MAX))).await.admitted);
    assert!(!store.decide_one(at(0), "b", bucket, Hits::charge(u64::MAX)).await.admitted);
}
