//! Queues of a migrating slot: a script must not touch a key again after emptying it.

use std::num::NonZeroU64;

use tollgate::{
    algorithm::{Algorithm, Verdict},
    clock::Timestamp,
    descriptor::Hits,
    lease::LeaseId,
    store::{RedisStore, redis::ScriptClock},
};

use crate::support::{
    cluster::Cluster,
    stores::{at, call, policy},
};

async fn decide(store: &RedisStore, now: Timestamp, algorithm: Algorithm, hits: Hits) -> Verdict {
    let call = call("queue", &[(0, policy(algorithm, 5, 60), hits)]);
    let store = store.clone().with_clock(ScriptClock::Fixed(now));
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
