//! Leases: budgets that are settled late or reserved again, and permits of concurrency limits.

use std::num::NonZeroU32;

use tollgate::algorithm::{Reserve, Unsettled};

use super::*;

promises! {
    a_late_settlement_replaces_the_charge_of_the_end,
    a_late_settlement_takes_nothing_from_another_window,
    many_leases_that_end_together_are_settled_late,
    a_known_lease_reserves_no_more_than_it_holds,
    a_permit_is_held_until_its_lease_is_released,
    an_unreleased_lease_expires,
    a_release_is_never_denied,
}

const TTL: u32 = 30;

fn budget(window: u32) -> Policy {
    let quota = Quota { limit: 10_000, window: Window::from_seconds(window).expect("in range") };
    let ttl = NonZeroU32::new(TTL).expect("not 0");
    let reserve = Reserve { ttl, unsettled: Unsettled::Charge, add: 0, cap: None };
    let parameters = Parameters { reserve: Some(reserve), ..Parameters::default() };
    Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid")
}

fn settle(lease: u64, used: u64) -> Hits {
    Hits::Settle { lease: LeaseId::new(NonZeroU64::new(lease).expect("not 0")), used }
}

/// Used and held hits after a decision at a second.
async fn counts(store: &Subject, window: u32, second: u32, hits: Hits) -> (u64, u64) {
    let verdict = store.decide_one(at(u64::from(second) * SECOND), "a", budget(window), hits).await;
    (verdict.used, verdict.held)
}

async fn a_late_settlement_replaces_the_charge_of_the_end(store: &Subject) {
    let decide = async |second, hits| counts(store, 3_600, second, hits).await;
    for lease in 1..=5 {
        decide(0, acquire(lease, 60)).await;
    }
    assert_eq!(decide(TTL - 1, Hits::Peek).await, (0, 300));
    // The first call after the end may be the settlement.
    assert_eq!(decide(TTL, settle(1, 10)).await, (250, 0));
    assert_eq!(decide(TTL + 1, settle(2, 100)).await, (290, 0));
    // Without usage, the charge stays.
    assert_eq!(decide(TTL + 2, settle(3, 0)).await, (290, 0));
    assert_eq!(decide(2 * TTL - 1, settle(4, 60)).await, (290, 0));
    for lease in 1..=2 {
        assert_eq!(decide(2 * TTL - 1, settle(lease, 999)).await, (290, 0), "once");
    }
    // It is forgotten.
    assert_eq!(decide(2 * TTL, settle(5, 7)).await, (297, 0));
    assert_eq!(decide(2 * TTL, settle(5, 7)).await, (297, 0));
}

async fn a_late_settlement_takes_nothing_from_another_window(store: &Subject) {
    let decide = async |second, hits| counts(store, 10, second, hits).await;
    for lease in 1..=3 {
        decide(5, acquire(lease, 60)).await;
    }
    assert_eq!(decide(TTL + 5, Hits::Peek).await, (180, 0), "in the window of the end");
    assert_eq!(decide(TTL + 6, settle(1, 10)).await, (130, 0));
    assert_eq!(decide(TTL + 10, Hits::charge(7)).await, (7, 0));
    assert_eq!(decide(TTL + 10, settle(2, 10)).await, (7, 0));
    assert_eq!(decide(TTL + 11, settle(3, 90)).await, (37, 0));
}

async fn many_leases_that_end_together_are_settled_late(store: &Subject) {
    let decide = async |second, hits| counts(store, 3_600, second, hits).await;
    for lease in 1..=100 {
        decide(0, acquire(lease, 10)).await;
    }
    for lease in 1..=50 {
        decide(TTL, settle(lease, 1)).await;
    }
    assert_eq!(decide(TTL + 1, acquire(1_000, 1)).await, (550, 1));
    for lease in 51..=100 {
        decide(2 * TTL - 1, settle(lease, 1)).await;
    }
    assert_eq!(decide(2 * TTL - 1, settle(1_000, 1)).await, (101, 0));
}

async fn a_known_lease_reserves_no_more_than_it_holds(store: &Subject) {
    let decide = async |second: u32, hits| {
        let now = at(u64::from(second) * SECOND);
        let verdict = store.decide_one(now, "a", budget(3_600), hits).await;
        (verdict.admitted, verdict.has_conflict(), verdict.used + verdict.held)
    };
    assert_eq!(decide(0, acquire(1, 60)).await, (true, false, 60));
    assert_eq!(decide(1, acquire(1, 60)).await, (true, false, 60));
    assert_eq!(decide(1, acquire(1, 59)).await, (true, false, 60));
    assert_eq!(decide(1, acquire(1, 61)).await, (false, true, 60));
    assert_eq!(decide(1, acquire(2, 9_941)).await, (false, false, 60));
    decide(2, settle(1, 10)).await;
    assert_eq!(decide(2, acquire(1, 1)).await, (false, true, 10), "settled");
    decide(2, acquire(2, 60)).await;
    assert_eq!(decide(TTL + 2, acquire(2, 60)).await, (false, true, 70), "ended");
    assert_eq!(decide(2 * TTL + 2, acquire(2, 60)).await, (true, false, 130), "forgotten");
}

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
