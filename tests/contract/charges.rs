//! Charges, checks and resets of counters of every algorithm.

use std::time::Duration;

use tollgate::{
    SyncMode,
    algorithm::{Algorithm, Verdict},
    descriptor::Hits,
    quota::Window,
};

use super::{SECOND, limited};
use crate::support::stores::{Subject, at, call, policy};

promises!(
    a_counter_that_may_be_leased_counts_no_hits_that_it_denies,
    a_check_charges_nothing,
    more_hits_than_the_limit_never_pass,
    a_limit_of_zero_denies_every_hit,
    counters_of_one_tag_are_independent,
    a_counter_checked_twice_in_a_call_is_charged_twice,
    amounts_beyond_any_limit_are_exact_enough,
    a_reset_frees_everything,
);

async fn a_counter_that_may_be_leased_counts_no_hits_that_it_denies(store: &Subject) {
    for sync in [SyncMode::Leased, SyncMode::Auto] {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
            let policy = limited(algorithm);
            let name = format!("{}-{}", sync.name(), algorithm.name());
            let decide = async |hits| {
                let mut call = call(&name, &[(0, policy, hits)]);
                call.cells[0].checks[0].sync = sync;
                store.decide(at(0), &call).await[0]
            };
            for remaining in [2, 1, 0] {
                let verdict = decide(Hits::ONE).await;
                assert_eq!((verdict.admitted, verdict.remaining), (true, remaining), "{name}");
            }
            for _ in 0..3 {
                assert!(!decide(Hits::ONE).await.admitted, "{name}");
            }
            assert_eq!(decide(Hits::refund(1)).await.remaining, 1, "{name}");
            assert!(decide(Hits::ONE).await.admitted, "{name}");
            assert!(!decide(Hits::ONE).await.admitted, "{name}");
        }
    }
}

async fn a_check_charges_nothing(store: &Subject) {
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

async fn more_hits_than_the_limit_never_pass(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let verdict = store.decide_one(at(0), "a", limited(algorithm), Hits::charge(4)).await;
        assert!(!verdict.admitted);
        assert_eq!(verdict.retry_after, Duration::MAX);
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

async fn counters_of_one_tag_are_independent(store: &Subject) {
    let (window, bucket) = (limited(Algorithm::FixedWindow), limited(Algorithm::TokenBucket));
    let checks = [(1, window, Hits::charge(3)), (2, window, Hits::ONE), (1, bucket, Hits::charge(2))];
    let remaining = |verdicts: Vec<Verdict>| -> Vec<u64> {
        verdicts.into_iter().map(|verdict| verdict.remaining).collect()
    };
    assert_eq!(remaining(store.decide(at(0), &call("a", &checks)).await), [0, 2, 1]);
    // Some of them, in another order, and a new one.
    let checks = [(1, bucket, Hits::Peek), (3, window, Hits::ONE), (1, window, Hits::Peek)];
    assert_eq!(remaining(store.decide(at(0), &call("a", &checks)).await), [1, 2, 0]);
    assert_eq!(remaining(store.decide(at(0), &call("b", &[(1, window, Hits::ONE)])).await), [2]);
}

async fn a_counter_checked_twice_in_a_call_is_charged_twice(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let check = (1, limited(algorithm), Hits::charge(2));
        let verdicts = store.decide(at(0), &call("a", &[check, check])).await;
        assert_eq!((verdicts[0].admitted, verdicts[1].admitted), (true, false));
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

async fn a_reset_frees_everything(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(59 * SECOND), "a", policy, Hits::charge(2)).await;
        store.decide_one(at(61 * SECOND), "a", policy, Hits::ONE).await;
        let reset = store.decide_one(at(61 * SECOND), "a", policy, Hits::reset()).await;
        assert_eq!((reset.used, reset.remaining), (0, 3), "{}", algorithm.name());
        assert!(store.decide_one(at(61 * SECOND), "a", policy, Hits::charge(3)).await.admitted);
    }
}
