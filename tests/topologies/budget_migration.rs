//! Budgets in a slot that moves to another node.

use std::num::NonZeroU64;
use tollgate::{
    algorithm::{Algorithm, Parameters, Policy, Reserve, Unsettled},
    descriptor::Hits,
    lease::LeaseId,
    quota::{Quota, Window},
    store::redis::ScriptClock,
};

use crate::support::{
    cluster::Cluster,
    stores::{at, call},
};

#[tokio::test]
async fn a_budget_whose_leases_ended_keeps_its_usage_while_its_slot_migrates() {
    let cluster = Cluster::start(2, 0, &[], "");
    let store = cluster.store("budget:");
    let quota = Quota { limit: 10, window: Window::from_seconds(3_600).expect("in range") };
    let reserve =
        Reserve { ttl: 10.try_into().expect("not 0"), unsettled: Unsettled::Charge, add: 0, cap: None };
    let parameters = Parameters { reserve: Some(reserve), ..Parameters::default() };
    let policy = Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid");
    let decide = async |seconds: u64, hits: Hits| {
        let store = store.clone().with_clock(ScriptClock::Fixed(at(seconds * 1_000_000)));
        store.decide(&call("budget", &[(0, policy, hits)])).await.map(|verdicts| verdicts[0].1)
    };
    let slot = call("budget", &[(0, policy, Hits::ONE)]).cells[0].key.slot();
    let from = cluster.master_of(slot);
    let lease = LeaseId::new(NonZeroU64::MIN);
    decide(0, Hits::Acquire { amount: NonZeroU64::new(8).expect("not 0"), lease }).await.expect("reserved");
    cluster.begin_move(slot, from, 1 - from);
    // The lease has ended: its 8 hits count as used.
    let first = decide(60, Hits::charge(1)).await;
    let second = decide(61, Hits::Peek).await;
    assert_eq!((first.map(|v| v.used), second.map(|v| v.used)), (Ok(9), Ok(9)));
}
