//! Several runs in one command: what fails is alone in it, and keys end when they should.

use redis::Commands as _;
use tollgate::algorithm::Prefetch;
use tollgate::store::redis::{CommandKeys, Run, RunOutcome};

use crate::support::prelude::*;

fn charge(name: &str, algorithm: Algorithm, seconds: u32) -> TagRequest {
    call(name, &[(0, policy(algorithm, 1_000, seconds), Hits::ONE)])
}

fn key(call: &TagRequest) -> Vec<u8> {
    call.cells[0].key.as_bytes().to_vec()
}

fn used(outcome: &Result<RunOutcome, StoreError>) -> u64 {
    outcome.as_ref().expect("it is decided").verdicts.last().expect("once at least")[0].1.used
}

#[tokio::test]
async fn a_key_of_another_type_fails_alone() {
    let (redis, store) = Redis::start_store();
    let calls = [
        charge("before", Algorithm::FixedWindow, 31_536_000),
        charge("foreign", Algorithm::FixedWindow, 31_536_000),
        charge("between", Algorithm::SlidingWindow, 31_536_000),
        // What is no usual case: a queue, and a string that is no cell.
        charge("queue", Algorithm::SlidingWindowLog, 31_536_000),
        charge("garbage", Algorithm::TokenBucket, 31_536_000),
        charge("after", Algorithm::TokenBucket, 31_536_000),
    ];
    let mut connection = redis.connect();
    connection.rpush::<_, _, ()>(key(&calls[1]), "theirs").expect("an answer");
    connection.set::<_, _, ()>(key(&calls[3]), "theirs").expect("an answer");
    connection.set::<_, _, ()>(key(&calls[4]), "\u{2}a format of tomorrow").expect("an answer");
    let runs: Vec<_> = calls.iter().map(Run::once).collect();
    for round in 1..=2 {
        let outcomes = store.decide_runs(&runs, CommandKeys::NoSlots).await.expect("most are decided");
        for at in [0, 2, 5] {
            assert_eq!(used(&outcomes[at]), round, "{at}");
        }
        for (at, text) in [(1, "WRONGTYPE"), (3, "WRONGTYPE"), (4, "unknown format")] {
            let error = match (&outcomes[at], at) {
                (Err(StoreError::Declined(error)), 1 | 3) | (Err(StoreError::Refused(error)), 4) => error,
                (other, _) => panic!("{other:?}"),
            };
            assert!(error.contains(text) || text == "WRONGTYPE" && error.contains("wrong kind"), "{error}");
        }
    }
    assert_eq!(connection.lrange::<_, Vec<String>>(key(&calls[1]), 0, -1).expect("a list"), ["theirs"]);
    assert_eq!(connection.get::<_, String>(key(&calls[3])).expect("a string"), "theirs");
    // Alone, it is the answer as a whole.
    assert!(matches!(
        store.decide_runs(&runs[1..2], CommandKeys::NoSlots).await,
        Err(StoreError::Refused(_))
    ));
}

#[tokio::test]
async fn two_runs_of_one_key_see_each_other() {
    let (_redis, store) = Redis::start_store();
    let one = charge("a", Algorithm::FixedWindow, 31_536_000);
    let other = call("a", &[(1, policy(Algorithm::TokenBucket, 1_000, 31_536_000), Hits::ONE)]);
    let both = call(
        "a",
        &[
            (0, policy(Algorithm::FixedWindow, 1_000, 31_536_000), Hits::ONE),
            (1, policy(Algorithm::TokenBucket, 1_000, 31_536_000), Hits::ONE),
        ],
    );
    let reset = call("a", &[(0, policy(Algorithm::FixedWindow, 1_000, 31_536_000), Hits::reset())]);
    let runs = [&one, &one, &other, &both, &reset, &one].map(Run::once);
    let outcomes = store.decide_runs(&runs, CommandKeys::NoSlots).await.expect("all are decided");
    let used: Vec<_> = outcomes.iter().map(used).collect();
    assert_eq!(used, [1, 2, 1, 3, 0, 1]);
}

/// Milliseconds until a key ends.
fn ttl(redis: &Redis, call: &TagRequest) -> i64 {
    redis.connect().pttl(key(call)).expect("an answer")
}

#[tokio::test]
async fn a_key_keeps_its_expiry_however_often_it_is_charged() {
    const DAY: u32 = 86_400;
    let (redis, store) = Redis::start_store();
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let name = algorithm.name();
        let long = charge(name, algorithm, 365 * DAY);
        for _ in 0..100 {
            let verdicts = store.decide(&long).await.expect("it is decided");
            let reset = i64::try_from(verdicts[0].1.reset_after.as_millis()).expect("few");
            let (least, left) = (reset.max(1), ttl(&redis, &long));
            // A bucket's end is rounded up to a second, and a window's hits count in part until the end of the next.
            let most = reset + if algorithm == Algorithm::SlidingWindow { 366 * 86_400_000 } else { 2_000 };
            // A busy machine may look late, but not by a minute.
            assert!((least - 60_000..=most).contains(&left), "{name}: {left} left, {reset} needed");
        }
    }
}

#[tokio::test]
async fn a_key_that_lost_its_expiry_gets_one() {
    let (redis, store) = Redis::start_store();
    let charge = charge("restored", Algorithm::FixedWindow, 31_536_000);
    store.decide(&charge).await.expect("it is decided");
    let mut connection = redis.connect();
    connection.persist::<_, ()>(key(&charge)).expect("an answer");
    assert_eq!(ttl(&redis, &charge), -1);
    // At one time of 16, whatever the key's end.
    for _ in 0..1_000 {
        store.decide(&charge).await.expect("it is decided");
    }
    assert!(ttl(&redis, &charge) > 0);
}

#[tokio::test]
async fn a_changed_end_updates_the_expiry() {
    let (redis, store) = Redis::start_store();
    let day = call("a", &[(0, policy(Algorithm::FixedWindow, 1_000, 31_536_000), Hits::ONE)]);
    let bucket = |hits| call("a", &[(1, policy(Algorithm::TokenBucket, 60, 60), hits)]);
    store.decide(&bucket(Hits::charge(20))).await.expect("it is decided");
    assert!((18_000..=21_000).contains(&ttl(&redis, &day)), "{}", ttl(&redis, &day));
    store.decide(&bucket(Hits::charge(20))).await.expect("it is decided");
    assert!((38_000..=41_000).contains(&ttl(&redis, &day)), "{}", ttl(&redis, &day));
    store.decide(&bucket(Hits::refund(30))).await.expect("it is decided");
    assert!((8_000..=11_000).contains(&ttl(&redis, &day)), "{}", ttl(&redis, &day));
    // Prefetched tokens count too.
    let wish = Prefetch { max_tokens: 30, share: u16::MAX, hold_millis: 100 };
    let charge = bucket(Hits::ONE);
    let run = Run { request: &charge, times: 1, prefetches: &[wish], reported: &[] };
    let outcomes = store.decide_runs(&[run], CommandKeys::NoSlots).await.expect("it is decided");
    assert_eq!(outcomes[0].as_ref().expect("it is decided").prefetched[..], [30]);
    assert!((38_000..=42_000).contains(&ttl(&redis, &day)), "{}", ttl(&redis, &day));
    store.decide(&bucket(Hits::reset())).await.expect("it is decided");
    assert_eq!(ttl(&redis, &day), -2);
    let second = charge_for(1);
    store.decide(&second).await.expect("it is decided");
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(ttl(&redis, &second), -2);
}

fn charge_for(seconds: u32) -> TagRequest {
    charge("short", Algorithm::FixedWindow, seconds)
}

/// Connections that the server has had.
fn connections(redis: &Redis) -> f64 {
    redis.figure("stats", "total_connections_received")
}

#[tokio::test]
async fn a_demoted_server_is_replaced_by_a_new_connection() {
    let (redis, store) = Redis::start_store();
    let calls = ["a", "b"].map(|name| charge(name, Algorithm::FixedWindow, 31_536_000));
    let runs = calls.each_ref().map(Run::once);
    store.decide_runs(&runs, CommandKeys::NoSlots).await.expect("all are decided");
    cmd("REPLICAOF").arg("127.0.0.1").arg(1).query::<()>(&mut redis.connect()).expect("an answer");
    let before = connections(&redis);
    let outcomes = store.decide_runs(&runs, CommandKeys::NoSlots).await.expect("an answer");
    for outcome in outcomes {
        assert!(matches!(outcome, Err(StoreError::Declined(error)) if error.contains("read only")));
    }
    // Looking makes one, too.
    let mut looks = 0.0;
    until("the connection is kept", async || {
        looks += 1.0;
        connections(&redis) > before + looks
    })
    .await;
}
