//! Token buckets: their burst, rate and waits.

use tollgate::{
    algorithm::{Algorithm, Parameters, Policy},
    descriptor::Hits,
    quota::{Quota, Window},
};

use super::{SECOND, limited};
use crate::support::stores::{Subject, at, policy};

promises!(
    a_bucket_admits_its_burst_at_once_then_its_rate,
    a_bucket_admits_at_retry_after_and_not_a_microsecond_earlier,
    a_bucket_does_not_count_hits_that_it_denies,
);

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
