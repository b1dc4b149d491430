//! Permits of concurrency limits, under leases.

use std::num::NonZeroU64;

use tollgate::{algorithm::Algorithm, descriptor::Hits, lease::LeaseId};

use super::{SECOND, limited};
use crate::support::stores::{Subject, at, policy};

promises!(
    a_permit_is_held_until_its_lease_is_released,
    an_unreleased_lease_expires,
    a_release_is_never_denied,
);

/// Takes places under the lease of a number.
pub(super) fn acquire(lease: u64, amount: u64) -> Hits {
    let [lease, amount] = [lease, amount].map(|number| NonZeroU64::new(number).expect("not 0"));
    Hits::Acquire { amount, lease: LeaseId::new(lease) }
}

pub(super) fn release(lease: u64) -> Hits {
    Hits::Release(LeaseId::new(NonZeroU64::new(lease).expect("not 0")))
}

async fn a_permit_is_held_until_its_lease_is_released(store: &Subject) {
    let policy = limited(Algorithm::Concurrency);
    let decide = async |hits| store.decide_one(at(0), "a", policy, hits).await;
    assert_eq!(decide(acquire(1, 1)).await.remaining, 2);
    assert_eq!(decide(acquire(2, 2)).await.remaining, 0);
    assert!(!decide(acquire(3, 1)).await.admitted);
    // One that was denied holds nothing, and one that is released twice frees nothing of others.
    for (lease, remaining) in [(3, 0), (1, 1), (1, 1), (99, 1), (2, 3), (2, 3)] {
        let released = decide(release(lease)).await;
        assert!(released.admitted);
        assert_eq!(released.remaining, remaining, "after lease {lease}");
    }
    assert!(decide(acquire(1, 3)).await.admitted);
}

async fn an_unreleased_lease_expires(store: &Subject) {
    let policy = limited(Algorithm::Concurrency);
    store.decide_one(at(0), "a", policy, acquire(1, 1)).await;
    store.decide_one(at(30 * SECOND), "a", policy, acquire(2, 2)).await;
    assert!(!store.decide_one(at(60 * SECOND - 1), "a", policy, acquire(3, 1)).await.admitted);
    assert!(store.decide_one(at(60 * SECOND), "a", policy, acquire(3, 1)).await.admitted);
    assert_eq!(store.decide_one(at(90 * SECOND), "a", policy, Hits::Peek).await.used, 1);
}

async fn a_release_is_never_denied(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let (high, low, name) = (policy(algorithm, 10, 60), policy(algorithm, 2, 60), algorithm.name());
        store.decide_one(at(0), name, high, acquire(1, 8)).await;
        for hits in [Hits::refund(1), Hits::RefundCharge { amount: NonZeroU64::MIN, made_at: at(0) }] {
            assert!(store.decide_one(at(0), name, low, hits).await.admitted, "{name}");
        }
        store.decide_one(at(0), name, high, acquire(2, 1)).await;
        if algorithm == Algorithm::Concurrency {
            assert!(store.decide_one(at(0), name, low, release(2)).await.admitted);
        }
    }
}
