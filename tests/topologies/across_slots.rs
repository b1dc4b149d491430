//! Commands on several slots of one node: every call is charged once, whichever slots move, or alone where the servers do
//! not permit such commands.

use redis::Commands as _;
use tollgate::store::redis::{CommandKeys, Run};

use super::*;

/// Hits that a counter of the tests under load admits.
const LIMIT: u32 = 60;

/// `EVALSHA` commands that a node executed.
fn commands(cluster: &Cluster, node: usize) -> u64 {
    let stats = cluster.info(node, "commandstats");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn calls_of_many_slots_share_commands_since_redis_7_with_minimal_permissions() {
    const ROUNDS: u64 = 20;
    let cluster = Cluster::start(1, 0, &guarded("app:p@ss", &["asking", "cluster|slots"]), "admin");
    let url = format!("redis+cluster://app:app%3ap%40ss@{}", cluster.addresses());
    let store = connected(&url, "guarded:").await;
    let names: Vec<_> = (0..40).map(|number| format!("name{number}")).collect();
    let calls: Vec<_> = names.iter().map(|name| one(name, Hits::ONE)).collect();
    for _ in 0..ROUNDS {
        for verdict in join_all(calls.iter().map(|call| charge(&store, call))).await {
            verdict.expect("an answer");
        }
    }
    let sent = commands(&cluster, 0);
    let all = ROUNDS * calls.len() as u64;
    match major_version(&mut cluster.node(0)) {
        ..7 => assert!(sent >= all, "{sent} commands for {all} calls"),
        // Those of the first rounds were alone: the server was not probed yet.
        7.. => assert!(sent < all / 3, "{sent} commands for {all} calls"),
    }
    for name in &names {
        assert_eq!(used(&store, name).await, ROUNDS, "{name}");
    }
}

/// Decides calls in one command on the slots of one node.
async fn together(store: &RedisStore, calls: &[TagRequest]) -> Vec<Result<u64, StoreError>> {
    let store = store.clone().at_time(at(0));
    let runs: Vec<_> = calls.iter().map(Run::once).collect();
    let outcomes = store.decide_runs(&runs, CommandKeys::AnySlotOfNode).await.expect("a reply");
    outcomes.into_iter().map(|outcome| outcome.map(|outcome| outcome.verdicts[0][0].1.used)).collect()
}

fn is_unreached(outcome: &Result<u64, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Refused(error)) if error.contains("non local key"))
}

#[tokio::test]
async fn a_call_whose_keys_are_not_all_on_the_node_charges_none_of_them() {
    let cluster = Cluster::start(2, 0, &[], "");
    if major_version(&mut cluster.node(0)) < 7 {
        return;
    }
    let store = cluster.store("parts:");
    let names = names_on(&cluster, 0, "name", 6);
    let lease = Hits::Acquire { amount: NonZeroU64::MIN, lease: LeaseId::random() };
    let queue = |name: &str, algorithm, hits| call(name, &[(0, policy(algorithm, 5, 60), hits)]);
    let [stable, absent, present, half, log, permits] = names.as_slice() else { panic!("{names:?}") };
    for name in [present, half] {
        charge(&store, &two(name)).await.expect("an answer");
    }
    for slot in [absent, present, half, log, permits].map(|name| slot(name)) {
        cluster.begin_move(slot, 0, 1);
    }
    // The second of two keys of one call is on the other node already.
    cluster.move_key(&[b"parts:", two(half).cells[1].key.as_bytes()].concat(), 0, 1);
    let foreign = names_on(&cluster, 1, "name", 1).remove(0);
    let calls = [
        one(stable, Hits::ONE),
        one(absent, Hits::ONE),
        one(present, Hits::ONE),
        two(half),
        two(present),
        queue(log, Algorithm::SlidingWindowLog, Hits::ONE),
        queue(permits, Algorithm::Concurrency, lease),
        one(&foreign, Hits::ONE),
        one(stable, Hits::ONE),
    ];
    let outcomes = together(&store, &calls).await;
    let decided: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().ok().copied()).collect();
    assert_eq!(decided, [Some(1), None, Some(2), None, Some(3), None, None, None, Some(2)], "{outcomes:?}");
    assert!([1, 3, 5, 6, 7].iter().all(|at| is_unreached(&outcomes[*at])), "{outcomes:?}");

    for slot in [absent, present, half, log, permits].map(|name| slot(name)) {
        cluster.end_move(slot, 0, 1);
    }
    for (name, hits) in [(stable, 2), (absent, 0), (present, 3), (half, 1), (&foreign, 0)] {
        assert_eq!(used(&store, name).await, hits, "{name}");
    }
    for call in &calls[5..=6] {
        let key = [b"parts:", call.cells[0].key.as_bytes()].concat();
        assert!(!cluster.node(1).exists::<_, bool>(key).expect("an answer"), "a queue was charged");
    }
}

#[tokio::test]
async fn a_call_that_meets_a_key_emptied_in_its_command_is_not_charged() {
    let cluster = Cluster::start(2, 0, &[], "");
    if major_version(&mut cluster.node(0)) < 7 {
        return;
    }
    let store = cluster.store("emptied:");
    let lease = LeaseId::random();
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::Concurrency] {
        let name = &names_on(&cluster, 0, algorithm.name(), 1)[0];
        let call = |hits| call(name, &[(0, policy(algorithm, 5, 60), hits)]);
        let acquire = call(Hits::Acquire { amount: NonZeroU64::MIN, lease });
        charge(&store, &acquire).await.expect("an answer");
        cluster.begin_move(slot(name), 0, 1);
        let other = one(&format!("{name}-other"), Hits::Peek);
        let outcomes = together(&store, &[call(Hits::reset()), call(Hits::ONE), other]).await;
        assert_eq!(outcomes[0], Ok(0), "{algorithm:?}");
        assert!(is_unreached(&outcomes[1]), "{algorithm:?}: {outcomes:?}");
        cluster.end_move(slot(name), 0, 1);
        let verdict = charge(&store, &call(Hits::Peek)).await.expect("an answer");
        assert_eq!(verdict.used, 0, "{algorithm:?}");
    }
}

/// Decides each call in as many concurrent rounds as there are; returns how many of each were admitted.
async fn admitted(store: &RedisStore, calls: &[TagRequest], rounds: usize) -> Vec<u32> {
    let mut admitted = vec![0; calls.len()];
    for _ in 0..rounds {
        let verdicts = join_all(calls.iter().map(|call| charge(store, call))).await;
        for (count, verdict) in admitted.iter_mut().zip(verdicts) {
            *count += u32::from(verdict.expect("an answer").admitted);
        }
    }
    admitted
}

#[tokio::test]
async fn slots_that_move_under_load_admit_exactly_their_limits() {
    const ROUNDS: usize = 10;
    let cluster = Cluster::start(2, 0, &[], "");
    let store = cluster.store("limits:");
    let names = [names_on(&cluster, 0, "load", 24), names_on(&cluster, 1, "load", 24)].concat();
    let algorithms = [Algorithm::FixedWindow, Algorithm::TokenBucket, Algorithm::SlidingWindowLog];
    let limited = |(at, name): (usize, &String)| {
        call(name, &[(0, policy(algorithms[at % algorithms.len()], LIMIT, 3_600), Hits::ONE)])
    };
    let calls: Vec<_> = names.iter().enumerate().map(limited).collect();
    // Some counters are new when their slots begin to move.
    let (old, moved) = (calls.len() / 3, calls.len() * 2 / 3);
    let mut sum = vec![0; calls.len()];
    let mut add = |counts: Vec<u32>| sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    let first: Vec<_> = calls.iter().step_by(3).take(old).cloned().collect();
    let mut counts = vec![0; calls.len()];
    for (at, count) in admitted(&store, &first, ROUNDS).await.into_iter().enumerate() {
        counts[at * 3] = count;
    }
    add(counts);
    let slots: Vec<_> = names.iter().take(moved).map(|name| slot(name)).collect();
    for turn in 0..2 {
        let ends = |slot: u16| if turn == 0 { cluster.master_of(slot) } else { 1 - cluster.master_of(slot) };
        slots.iter().for_each(|slot| cluster.begin_move(*slot, ends(*slot), 1 - ends(*slot)));
        add(admitted(&store, &calls, ROUNDS).await);
        for part in slots.chunks(8) {
            part.iter().for_each(|slot| cluster.end_move(*slot, ends(*slot), 1 - ends(*slot)));
            add(admitted(&store, &calls, ROUNDS / 2).await);
        }
    }
    add(admitted(&store, &calls, LIMIT as usize).await);
    assert_eq!(sum, vec![LIMIT; calls.len()]);
}

#[tokio::test]
async fn a_failover_loses_and_repeats_no_charge() {
    let cluster = Cluster::start(2, 2, &[], "");
    let store = cluster.store("failover:");
    let names = names_on(&cluster, 0, "name", 40);
    let calls: Vec<_> = names.iter().map(|name| one(name, Hits::ONE)).collect();
    let (mut counted, mut unknown) = (vec![0_u64; names.len()], vec![0_u64; names.len()]);
    let begun = Instant::now();
    let (mut again, mut rounds_after) = (begun, 0);
    while rounds_after < 20 {
        for (at, verdict) in join_all(calls.iter().map(|call| charge(&store, call))).await.iter().enumerate()
        {
            match verdict {
                Ok(_) => counted[at] += 1,
                Err(error) if error.charged_nothing() => {}
                Err(_) => unknown[at] += 1,
            }
        }
        if cluster.is_master(2) {
            rounds_after += 1;
        } else if Instant::now() > again {
            cluster.fail_over(2);
            again = Instant::now() + Duration::from_secs(6);
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the replica is not promoted");
    }
    for (at, name) in names.iter().enumerate() {
        let hits = used(&store, name).await;
        assert!((counted[at]..=counted[at] + unknown[at]).contains(&hits), "{name}: {hits}, {counted:?}");
    }
}
