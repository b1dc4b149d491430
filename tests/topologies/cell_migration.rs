//! Cells of a migrating slot: a key that a script deletes there cannot be set again.

use tollgate::{algorithm::Algorithm, descriptor::Hits, store::redis::ScriptClock};

use crate::support::{
    cluster::Cluster,
    stores::{at, call, policy},
};

#[tokio::test]
async fn a_cell_becomes_a_hash_only_outside_migrations_and_moves_with_all_records() {
    let cluster = Cluster::start(2, 0, &[], "");
    let store = cluster.store("grown:").with_clock(ScriptClock::Fixed(at(0)));
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
        redis::cmd("TYPE").arg(name).query(&mut cluster.node(node)).expect("a type")
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
