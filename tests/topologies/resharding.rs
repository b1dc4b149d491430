//! Slots that move while calls go on: every charge that is answered is counted, once.

use std::collections::HashMap;

use tokio::sync::Mutex;

use super::*;
use crate::support::cluster;

/// Tests take turns: a cluster is to move its slots at one's order.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

async fn answered(store: &RedisStore, call: &TagRequest) {
    charge(store, call).await.expect("an answer");
}

#[tokio::test]
async fn a_migrating_slot_causes_no_error_and_loses_no_count() {
    let _turn = EXCLUSIVE.lock().await;
    let cluster = cluster::shared();
    let store = cluster.store("on_its_way:");
    let name = name_on(cluster, 2, "way");
    let slot = slot(&name);
    let (single, both) = (one(&name, Hits::ONE), two(&name));
    answered(&store, &both).await;

    cluster.begin_move(slot, 2, 0);
    // Still where it was.
    answered(&store, &single).await;
    let key = [b"on_its_way:", both.cells[0].key.as_bytes()].concat();
    cluster.move_key(&key, 2, 0);
    // Sent to the other node after ASKING: it does not have the script yet, and may lose it later.
    answered(&store, &single).await;
    let mut flush = cmd("SCRIPT");
    flush.arg("FLUSH").exec(&mut cluster.node(0)).expect("flushed");
    answered(&store, &single).await;
    // One cell here, one there: not before the slot has moved.
    let waiting = tokio::spawn({
        let (store, both) = (store.clone(), both.clone());
        async move {
            let begun = Instant::now();
            answered(&store, &both).await;
            begun.elapsed()
        }
    });
    sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "cells of two nodes were decided in one step");
    cluster.end_move(slot, 2, 0);
    let waited = waiting.await.expect("no panic");
    assert!(waited >= Duration::from_millis(90), "{waited:?}");
    // The table may still have the old owner.
    answered(&store, &single).await;
    assert_eq!(used(&store, &name).await, 6);
    // A store that starts now contacts no other node.
    assert_eq!(used(&cluster.store("on_its_way:"), &name).await, 6);

    cluster.begin_move(slot, 0, 2);
    cluster.end_move(slot, 0, 2);
    answered(&store, &both).await;
    assert_eq!(used(&store, &name).await, 7);
}

const MIGRATING_SLOTS: usize = 50;

/// The hits of a counter, once the nodes agree on the owner of its slot: gossip about the last migrations takes time,
/// and this read is not one of the calls that must not fail.
async fn counted(store: &RedisStore, name: &str) -> u64 {
    let call = one(name, Hits::Peek);
    found(name, async || charge(store, &call).await.ok()).await.used
}

/// A name of a tag for each of the slots.
fn names_of(slots: &[u16]) -> Vec<String> {
    let mut by_slot: HashMap<u16, String> = HashMap::new();
    for name in (0..).map(|number| format!("reshard{number}")) {
        if slots.contains(&slot(&name)) {
            by_slot.entry(slot(&name)).or_insert(name);
        }
        if by_slot.len() == MIGRATING_SLOTS {
            break;
        }
    }
    by_slot.into_values().collect()
}

/// Calls on tags until `done`; every second one has two cells. Returns the number of calls of each tag.
fn call_until(done: &'static AtomicBool, store: &RedisStore, names: &'static [String]) -> JoinSet<Vec<u64>> {
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut counts = vec![0_u64; names.len()];
            for at in (0..names.len()).cycle().skip(task * 7) {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let call = if at % 2 == 0 { two(&names[at]) } else { one(&names[at], Hits::ONE) };
                charge(&store, &call).await.expect("no call fails");
                counts[at] += 1;
            }
            counts
        });
    }
    tasks
}

/// Moves slots to another node and back for some seconds. Returns the number of moves.
fn move_back_and_forth(cluster: &Cluster, slots: &[u16]) -> usize {
    let (mut moves, begun) = (0, Instant::now());
    // Ends where it began.
    while begun.elapsed() < Duration::from_secs(5) {
        for (from, to) in [(0, 1), (1, 0)] {
            for slot in slots {
                cluster.begin_move(*slot, from, to);
                cluster.end_move(*slot, from, to);
                moves += 1;
            }
        }
    }
    moves
}

#[tokio::test]
async fn resharding_under_load_loses_no_call_and_double_charges_none() {
    let _turn = EXCLUSIVE.lock().await;
    let cluster = cluster::shared();
    let store = cluster.store("reshard:");
    let slots: Vec<u16> = cluster.slots(0).step_by(100).take(MIGRATING_SLOTS).collect();
    let names: &[String] = names_of(&slots).leak();
    // Cells of one tag are found together if they are there before they move.
    for name in names.iter().step_by(2) {
        answered(&store, &two(name)).await;
    }

    let done: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let tasks = call_until(done, &store, names);
    let moves = tokio::task::spawn_blocking(move || {
        let moves = move_back_and_forth(cluster, &slots);
        done.store(true, Ordering::Relaxed);
        moves
    });
    let moves = moves.await.expect("no panic");
    let mut answered = vec![0_u64; names.len()];
    for counts in tasks.join_all().await {
        answered.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    println!("{moves} moves of a slot, {} calls", answered.iter().sum::<u64>());
    // Across slots, a script reports keys that are absent; those calls are then alone, seldom before the slot has moved.
    let absent = if major_version(&mut cluster.node(0)) < 7 { "TRYAGAIN" } else { "ERR" };
    for answer in ["MOVED", "ASK", absent] {
        let stats = [0, 1].map(|node| cluster.info(node, "errorstats"));
        let was_met = stats.iter().any(|stats| stats.contains(&format!("errorstat_{answer}:")));
        assert!(was_met, "{answer} was not met: {stats:?}");
    }
    for (at, name) in names.iter().enumerate() {
        let before = u64::from(at % 2 == 0);
        assert_eq!(counted(&store, name).await, before + answered[at], "{name}");
    }
}
