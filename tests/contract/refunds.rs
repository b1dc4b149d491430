//! Refunds of hits and of charges.

use std::num::NonZeroU64;

use tollgate::{
    algorithm::{Algorithm, Verdict},
    descriptor::Hits,
};

use super::{
    SECOND, limited,
    permits::{acquire, release},
};
use crate::support::stores::{Subject, at, policy};

promises!(
    a_refund_never_goes_below_zero,
    a_refunded_charge_leaves_no_trace,
    a_late_refund_takes_nothing_from_other_charges,
    an_undone_bucket_gets_no_more_than_is_still_owed,
);

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
