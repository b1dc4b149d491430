//! Budgets, cells and queues in a slot that moves to another node: a script must not touch a key again after it deleted or
//! emptied it.

use tollgate::algorithm::{Reserve, Unsettled};
use tollgate::clock::Timestamp;

use super::*;

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
        let store = store.clone().at_time(at(seconds * 1_000_000));
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

#[tokio::test]
async fn a_cell_becomes_a_hash_only_outside_migrations_and_moves_with_all_records() {
    let cluster = Cluster::start(2, 0, &[], "");
    let store = cluster.store("grown:").at_time(at(0));
    let policy = policy(Algorithm::FixedWindow, 1_000, 3_600);
    let charge = async |numbers: std::ops::RangeInclusive<u8>, hits: u64| {
        let checks: Vec<_> = numbers.map(|number| (number, policy, Hits::ONE)).collect();
        for (_, verdict) in store.decide(&call("cell", &checks)).await.expect("an answer") {
            assert_eq!(verdict.used, hits);
        }
    };
    let key = call("cell", &[(0, policy, Hits::ONE)]).cells[0].key.clone();
    let (slot, from) = (key.slot(), cluster.master_of(key.slot()));
    let to = 1 - from;
    let type_at = |node: usize| -> String {
        let name = [b"grown:", key.as_bytes()].concat();
        cmd("TYPE").arg(name).query(&mut cluster.node(node)).expect("a type")
    };

    charge(0..=99, 1).await;
    cluster.begin_move(slot, from, to);
    charge(100..=199, 1).await;
    charge(0..=199, 2).await;
    assert_eq!(type_at(from), "string");
    cluster.end_move(slot, from, to);
    charge(0..=199, 3).await;
    assert_eq!(type_at(to), "hash");

    cluster.begin_move(slot, to, from);
    charge(0..=199, 4).await;
    charge(200..=255, 1).await;
    cluster.end_move(slot, to, from);
    assert_eq!(type_at(from), "hash");
    charge(0..=199, 5).await;
    charge(200..=255, 2).await;
}

async fn decide(store: &RedisStore, now: Timestamp, algorithm: Algorithm, hits: Hits) -> Verdict {
    let call = call("queue", &[(0, policy(algorithm, 5, 60), hits)]);
    let store = store.clone().at_time(now);
    store.decide(&call).await.expect("an answer")[0].1
}

#[tokio::test]
async fn a_queue_emptied_while_its_slot_migrates_causes_no_error() {
    let cluster = Cluster::start(2, 0, &[], "");
    let store = cluster.store("moving:");
    let lease = LeaseId::random();
    let acquire = Hits::Acquire { amount: NonZeroU64::MIN, lease };
    let later = at(120_000_000);
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::Concurrency] {
        let slot = call("queue", &[(0, policy(algorithm, 5, 60), Hits::ONE)]).cells[0].key.slot();
        let from = cluster.master_of(slot);
        let emptied: [(Timestamp, Hits); 6] = [
            (at(0), Hits::Release(lease)),
            (at(0), Hits::refund(1)),
            (at(0), Hits::RefundCharge { amount: NonZeroU64::MIN, made_at: at(0) }),
            (later, Hits::Peek),
            (later, Hits::ONE),
            (later, Hits::charge(6)),
        ];
        for (now, hits) in emptied {
            decide(&store, at(0), algorithm, Hits::reset()).await;
            decide(&store, at(0), algorithm, acquire).await;
            cluster.begin_move(slot, from, 1 - from);
            decide(&store, now, algorithm, hits).await;
            // Whether migrated or not, the next call is decided by either node.
            decide(&store, now, algorithm, Hits::ONE).await;
            cluster.end_move(slot, from, 1 - from);
            decide(&store, now, algorithm, Hits::reset()).await;
            cluster.begin_move(slot, 1 - from, from);
            cluster.end_move(slot, 1 - from, from);
        }
    }
}
