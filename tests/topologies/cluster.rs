//! Redis Cluster.

use std::cell::RefCell;

use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::support::cluster;

#[tokio::test]
async fn a_dead_seed_does_not_matter_and_no_seed_at_all_is_an_error() {
    let url = format!("redis+cluster://127.0.0.1:1,{}", cluster::shared().addresses());
    let store = connected(&url, "dead_seed:").await;
    for master in 0..3 {
        let name = name_on(cluster::shared(), master, "name");
        charge(&store, &one(&name, Hits::ONE)).await.expect("an answer");
    }
    // A replica knows the slots as well.
    let url = format!("redis+cluster://127.0.0.1:{}", cluster::shared().port(4));
    charge(&connected(&url, "replica_seed:").await, &one("a", Hits::ONE)).await.expect("an answer");

    let settings = settings("redis+cluster://127.0.0.1:1,127.0.0.1:2");
    let store = open(&settings);
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("there is no server");
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn the_program_is_ready_and_decides() {
    program_decides(&cluster::shared().url()).await;
}

#[test]
fn a_name_has_the_slot_that_redis_finds_whatever_is_in_it() {
    let node = RefCell::new(cluster::shared().node(0));
    let check = |key: &CellKey| {
        let bytes = [b"prefix:", key.as_bytes()].concat();
        let slot: u16 =
            cmd("CLUSTER").arg("KEYSLOT").arg(&bytes).query(&mut *node.borrow_mut()).expect("a slot");
        assert_eq!(slot, key.slot(), "{key}");
    };
    let awkward =
        ["", "{", "}", "{}", "}{", "{a}b{c}", "naïve ☕", "\0\r\n", "a|b=c,d%e@f#g~h", &"x".repeat(10_000)];
    for value in awkward {
        let key = CellKey::open(value, [Entry { key: value, value }, Entry { key: "k", value }].into_iter());
        check(&key);
        check(&key.limit_override(None, Algorithm::FixedWindow, 60));
    }
    check(&CellKey::global("d", RecordId::alone(Algorithm::FixedWindow)));
    let anything = (".{0,9}", "[{}a]{0,9}", ".{0,300}");
    TestRunner::new(Config { failure_persistence: None, ..Config::default() })
        .run(&anything, |(domain, name, value)| {
            check(&CellKey::open(&domain, [Entry { key: &name, value: &value }].into_iter()));
            Ok(())
        })
        .expect("the slots agree");
}

/// Moves the slot of a name from master 2 to master 0 and back. A user that may not send ASKING would fail here.
async fn move_slot_of(cluster: &Cluster, store: &RedisStore, name: &str) {
    let slot = slot(name);
    cluster.begin_move(slot, 2, 0);
    charge(store, &one(name, Hits::ONE)).await.expect("decided");
    cluster.end_move(slot, 2, 0);
    charge(store, &one(name, Hits::ONE)).await.expect("moved");
    cluster.begin_move(slot, 0, 2);
    cluster.end_move(slot, 0, 2);
}

/// Ends a master, in another way for each, and waits until its replica is promoted. Returns when that was.
async fn replace_master(cluster: &mut Cluster, master: usize) -> Instant {
    let replica = 3 + master;
    match master {
        0 => cluster.fail_over(replica),
        1 => cluster.kill(master),
        _ => cluster.stop(master),
    }
    let mut again = Instant::now() + Duration::from_secs(6);
    until("the replica is not promoted", async || {
        if master == 0 && Instant::now() > again {
            cluster.fail_over(replica);
            again += Duration::from_secs(6);
        }
        cluster.is_master(replica)
    })
    .await;
    Instant::now()
}

#[tokio::test]
async fn failovers_are_followed_with_minimal_permissions() {
    let guarded = guarded("app:p@ss", &["asking", "cluster|slots"]);
    let arguments = [&["--cluster-require-full-coverage", "no"], &guarded[..]].concat();
    let mut cluster = Cluster::start(3, 3, &arguments, "admin");
    let url = format!("redis+cluster://app:app%3ap%40ss@{}", cluster.addresses());
    let store = connected(&url, "guarded:").await;
    let names: Vec<String> = (0..3).map(|master| name_on(&cluster, master, "name")).collect();
    move_slot_of(&cluster, &store, &names[2]).await;

    // A call to a silent node waits for its timeout.
    let brief = RedisSettings {
        timeout: Duration::from_millis(300),
        key_prefix: "guarded:".into(),
        ..settings(&url)
    };
    let brief = open(&brief);
    for (master, event) in ["CLUSTER FAILOVER", "master killed", "master silent"].into_iter().enumerate() {
        let others = names.iter().enumerate().filter(|(other, _)| *other != master);
        let calm: Vec<Requests> = others.map(|(_, name)| Requests::start(&store, name)).collect();
        let name = name_on(&cluster, master, "met");
        let met = Requests::start(&store, &name);
        sleep(Duration::from_millis(200)).await;
        let begun = Instant::now();
        let promoted = replace_master(&mut cluster, master).await;
        let took = recovered(&brief, &names[master], promoted).await;
        println!(
            "{event}: promoted after {:?}, decides again {took:?} after the promotion",
            promoted - begun
        );
        sleep(Duration::from_millis(300)).await;
        let met = met.end().await;
        println!(
            "{event}: {} of {} calls failed",
            met.iter().filter(|result| result.is_err()).count(),
            met.len()
        );
        recovered(&store, &names[master], Instant::now()).await;
        // In the first case, the replica has everything before it takes over.
        assert_counted(&store, &name, &met, if master == 0 { 0 } else { 5 }).await;
        for calls in calm {
            for result in calls.end().await {
                assert_eq!(result, Ok(()), "a call to another shard failed");
            }
        }
    }
}
