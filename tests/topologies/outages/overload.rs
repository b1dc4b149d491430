//! Servers that are full or overloaded, and calls that are not sent to them.

use tollgate::store::CounterStore as _;

use super::*;
use crate::topologies::used;

#[tokio::test]
async fn a_full_server_charges_nothing_and_reports_it_until_it_has_room() {
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let store = redis.store();
    assert!(store.connected().await);
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
    let mut admin = redis.connect();
    let mut limit =
        |bytes: &str| cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec(&mut admin).expect("set");
    limit("1000");
    // Several together, as one command.
    let names: Vec<String> = some_names().chain(["a".to_owned()]).collect();
    let calls = names.iter().map(|name| timed(&store, name));
    for done in join_all(calls).await {
        let error = done.result.expect_err("there is no room");
        assert!(matches!(&error, StoreError::Declined(text) if text.contains("OOM")), "{error:?}");
        assert!(error.charged_nothing());
        assert_eq!(error.label(), "declined");
    }
    keeps_to_async(Duration::from_millis(100), "a full server that has room again", async || {
        limit("1000");
        timed(&store, "b").await.result.expect_err("there is no room");
        limit("0");
        recovered(&store, "b", Instant::now()).await
    })
    .await;
    assert_eq!(used(&store, "a").await, 1);
    assert_eq!(used(&store, "name0").await, 0);
}

#[tokio::test]
async fn excess_calls_to_an_overloaded_server_are_refused_at_once() {
    let (redis, store) = Redis::start_store();
    assert!(store.connected().await);
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
    redis.signal("STOP");
    let names: Vec<String> = (0..8_000).map(|number| format!("name{number}")).collect();
    let all = tokio::spawn({
        let store = store.clone();
        async move { join_all(names.iter().map(|name| timed(&store, name))).await }
    });
    sleep(Duration::from_millis(300)).await;
    redis.signal("CONT");
    let all = all.await.expect("no panic");
    let refused: Vec<_> = all.iter().filter(|done| done.result.is_err()).collect();
    assert!((1..=4_000).contains(&refused.len()), "{}", refused.len());
    assert!(refused.iter().all(|done| done.result == Err(StoreError::Overloaded)));
    // The server continues later than that.
    assert_most(&refused, |done| done.took < Duration::from_millis(200));
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
}

#[tokio::test]
async fn a_call_has_its_own_deadline_and_is_not_sent_after_it() {
    let (redis, store) = Redis::start_store();
    assert!(store.connected().await);
    let call = one("a", Hits::ONE);
    let over = store.decide_by(&call, Some(Instant::now().into())).await;
    assert_eq!(over, Err(StoreError::QueueTimeout(Duration::ZERO)));
    assert_eq!(used(&store, "a").await, 0);
    redis.signal("STOP");
    for millis in [5, 20, 80] {
        let own = Duration::from_millis(millis);
        keeps_to_async(own + Duration::from_millis(100), "a call's own time", async || {
            let begun = Instant::now();
            let error = store.decide_by(&call, Some((begun + own).into())).await.expect_err("no answer");
            let took = begun.elapsed();
            let (StoreError::Timeout(limit, _) | StoreError::QueueTimeout(limit)) = error else {
                panic!("{error:?}")
            };
            assert_eq!(limit, own, "{took:?}");
            assert!(took >= own, "{took:?}");
            took
        })
        .await;
    }
}

#[tokio::test]
async fn a_queued_call_of_a_cancelled_request_is_not_sent() {
    let (redis, store) = Redis::start_store();
    assert!(store.connected().await);
    charge(&store, &one("first", Hits::ONE)).await.expect("an answer");
    redis.signal("STOP");
    let start = |name: &str| {
        let (store, call) = (store.clone(), one(name, Hits::ONE));
        tokio::spawn(async move { charge(&store, &call).await.map(drop) })
    };
    // Those before it are two writes, and one that stays.
    let mut before = Vec::new();
    for name in ["first", "second", "third"] {
        before.push(start(name));
        sleep(Duration::from_millis(20)).await;
    }
    let dropped: Vec<_> = some_names().map(|name| start(&name)).collect();
    sleep(Duration::from_millis(20)).await;
    dropped.iter().for_each(JoinHandle::abort);
    sleep(Duration::from_millis(20)).await;
    redis.signal("CONT");
    for call in before {
        call.await.expect("no panic").expect("an answer");
    }
    for name in some_names() {
        assert_eq!(used(&store, &name).await, 0, "{name}");
    }
}

#[tokio::test]
async fn a_master_with_too_few_replicas_charges_nothing_until_it_has_enough() {
    let redis = Redis::start_with(&["--min-replicas-max-lag", "2"]);
    let store = redis.store();
    assert!(store.connected().await);
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
    let mut admin = redis.connect();
    let mut need = |count: &str| cmd("CONFIG").arg(&["SET", "min-replicas-to-write", count]).exec(&mut admin);
    need("1").expect("set");
    // Alone, and several together as one command.
    let names: Vec<String> = some_names().chain(["a".to_owned()]).collect();
    let mut refused = vec![timed(&store, "a").await];
    refused.extend(join_all(names.iter().map(|name| timed(&store, name))).await);
    for done in refused {
        let error = done.result.expect_err("there are no replicas");
        assert!(
            matches!(&error, StoreError::Declined(text) if text.contains("NOREPLICAS")),
            "not declined: {error:?}"
        );
    }
    need("0").expect("set");
    recovered(&store, "b", Instant::now()).await;
    assert_eq!(used(&store, "a").await, 1);
    assert_eq!(used(&store, "name0").await, 0);
}
