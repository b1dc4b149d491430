//! Charges, checks, resets and refunds of counters of every algorithm.

use tollgate::SyncMode;

use super::leases::{acquire, release};
use super::*;

promises! {
    a_counter_that_may_be_leased_counts_no_hits_that_it_denies,
    a_check_charges_nothing,
    more_hits_than_the_limit_never_pass,
    a_limit_of_zero_denies_every_hit,
    counters_of_one_tag_are_independent,
    a_counter_checked_twice_in_a_call_is_charged_twice,
    amounts_beyond_any_limit_are_exact_enough,
    a_reset_frees_everything,
    a_refund_never_goes_below_zero,
    a_refunded_charge_leaves_no_trace,
    a_late_refund_takes_nothing_from_other_charges,
    an_undone_bucket_gets_no_more_than_is_still_owed,
}

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
    let bucket = support::stores::policy(Algorithm::TokenBucket, u32::MAX, Window::MAX_SECONDS);
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

async fn a_refund_never_goes_below_zero(store: &Subject) {
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

async fn a_refunded_charge_leaves_no_trace(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = policy(algorithm, 5, 60);
        let name = algorithm.name();
        store.decide_one(at(0), name, policy, acquire(1, 2)).await;
        let charged = store.decide_one(at(SECOND), name, policy, acquire(2, 3)).await;
        assert_eq!((charged.admitted, charged.remaining), (true, 0), "{name}");
        let undo = match algorithm {
            Algorithm::Concurrency => release(2),
            _ => {
                Hits::RefundCharge { amount: NonZeroU64::new(3).expect("not 0"), made_at: charged.decided_at }
            }
        };
        // A bucket's end is known to the microsecond below it.
        store.decide_one(at(SECOND), name, policy, undo).await;
        let left = store.decide_one(at(SECOND + 1), name, policy, Hits::Peek).await;
        assert_eq!(left.used, 2, "{name}");
    }
}

async fn a_late_refund_takes_nothing_from_other_charges(store: &Subject) {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::TokenBucket,
    ] {
        let (policy, name) = (policy(algorithm, 5, 60), algorithm.name());
        let charged = store.decide_one(at(0), name, policy, Hits::charge(5)).await;
        let late = 121 * SECOND;
        assert_eq!(store.decide_one(at(late), name, policy, Hits::charge(5)).await.remaining, 0);
        let undo =
            Hits::RefundCharge { amount: NonZeroU64::new(5).expect("not 0"), made_at: charged.decided_at };
        assert_eq!(store.decide_one(at(late), name, policy, undo).await.remaining, 0, "{name}");
    }
}

async fn an_undone_bucket_gets_no_more_than_is_still_owed(store: &Subject) {
    // A token each 10 ms. Of three charges of 50, the first two are undone: one at once, one after the third.
    let policy = policy(Algorithm::TokenBucket, 100, 1);
    let charge = async |micros| store.decide_one(at(micros), "a", policy, Hits::charge(50)).await;
    let undo = async |micros, charged: Verdict| {
        let amount = NonZeroU64::new(50).expect("not 0");
        let undo = Hits::RefundCharge { amount, made_at: charged.decided_at };
        store.decide_one(at(micros), "a", policy, undo).await
    };
    let (first, second) = (charge(0).await, charge(0).await);
    assert_eq!(undo(0, first).await.used, 50);
    assert_eq!(charge(250_000).await.used, 75);
    assert_eq!(undo(250_000, second).await.used, 50, "the third alone");
}
