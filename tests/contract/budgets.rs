//! Budgets: leases that are settled late, or reserved again.

use std::num::{NonZeroU32, NonZeroU64};

use tollgate::{
    algorithm::{Algorithm, Parameters, Policy, Reserve, Unsettled},
    descriptor::Hits,
    lease::LeaseId,
    quota::{Quota, Window},
};

use super::{SECOND, permits::acquire};
use crate::support::stores::{Subject, at};

promises!(
    a_late_settlement_replaces_the_charge_of_the_end,
    a_late_settlement_takes_nothing_from_another_window,
    many_leases_that_end_together_are_settled_late,
    a_known_lease_reserves_no_more_than_it_holds,
);

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
