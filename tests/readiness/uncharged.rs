//! Errors that prove that nothing was charged, and those that do not.

use super::*;
use crate::support::stores::{NumberedCheck, charging};

/// Changes the permissions of the user.
fn permit(redis: &Redis, changes: &[&str]) {
    let mut command = cmd("ACL");
    command.arg("SETUSER").arg("app").arg(changes).exec(&mut redis.connect_as("default", "")).expect("set");
}

fn server() -> (Redis, String) {
    let (redis, url) = Redis::lacking("setrange");
    permit(&redis, &["+hset", "+hget", "+hmget", "+hdel", "+hgetall"]);
    (redis, url)
}

/// The calls of 60 that pass, and whether all, or none, were decided in Redis.
async fn passing(instance: &Instance, is_lost: bool) -> u32 {
    let mut client = instance.tollgate.client().await;
    let mut passing = 0;
    for _ in 0..60 {
        let answer = send(&mut client, "plain").await.expect("an answer");
        assert_eq!(is_degraded(&answer), is_lost);
        passing += u32::from(answer.overall_code() == 1.try_into().expect("OK"));
    }
    passing
}

#[tokio::test]
async fn a_limit_is_not_exceeded_after_a_permission_is_back() {
    for lost in ["evalsha", "set"] {
        let (redis, url) = server();
        let instance = Instance::start(&url, &["--store-timeout", "5s", "--replicas-hint", "1"]);
        instance.tollgate.wait_until_ready();
        let mut client = instance.tollgate.client().await;
        for _ in 0..20 {
            assert!(!is_degraded(&send(&mut client, "plain").await.expect("an answer")));
        }
        permit(&redis, &[&format!("-{lost}")]);
        let meanwhile = passing(&instance, true).await;
        permit(&redis, &[&format!("+{lost}")]);
        let charged = format!("tollgate_deferred_hits_total{{result=\"charged\"}} {meanwhile}\n");
        wait("what passed is not charged", || instance.tollgate.metrics().contains(&charged));
        let afterwards = passing(&instance, false).await;
        assert!(meanwhile > 20, "{lost}: {meanwhile} passed meanwhile");
        assert_eq!(20 + meanwhile + afterwards, 50, "{lost}: {meanwhile} passed meanwhile");
    }
}

/// The error of a call in which one command is not permitted.
async fn refused(redis: &Redis, store: &RedisStore, lost: &str, checks: &[NumberedCheck]) -> StoreError {
    permit(redis, &[&format!("-{lost}")]);
    let error = store.decide(&call("a", checks)).await.expect_err("it is not permitted");
    permit(redis, &[&format!("+{lost}")]);
    error
}

#[tokio::test]
async fn an_error_before_the_first_write_proves_that_nothing_was_charged() {
    let (redis, url) = server();
    let store = RedisStore::open(&settings(&url)).expect("valid settings");
    let check = |algorithm| (0, policy(algorithm, 1_000, 3_600), Hits::ONE);
    for (algorithm, lost) in [
        (Algorithm::FixedWindow, "evalsha"),
        (Algorithm::FixedWindow, "time"),
        (Algorithm::FixedWindow, "get"),
        (Algorithm::FixedWindow, "set"),
        (Algorithm::TokenBucket, "set"),
        (Algorithm::SlidingWindow, "set"),
        (Algorithm::SlidingWindowLog, "llen"),
        (Algorithm::SlidingWindowLog, "rpush"),
        (Algorithm::Concurrency, "zadd"),
    ] {
        let error = refused(&redis, &store, lost, &[check(algorithm)]).await;
        assert!(error.charged_nothing(), "{algorithm:?} without {lost}: {error}");
        let verdicts = store.decide(&call("a", &[(0, policy(algorithm, 1_000, 3_600), Hits::Peek)])).await;
        assert_eq!(verdicts.expect("it is permitted")[0].1.used, 0, "{algorithm:?} without {lost}");
    }
}

#[tokio::test]
async fn an_error_after_the_first_write_proves_nothing() {
    let (redis, url) = server();
    let store = RedisStore::open(&settings(&url)).expect("valid settings");
    let check = |algorithm| (0, policy(algorithm, 1_000, 3_600), Hits::ONE);
    // A queue without its expiry.
    let error = refused(&redis, &store, "pexpire", &[check(Algorithm::SlidingWindowLog)]).await;
    assert!(!error.charged_nothing() && error.to_string().contains("half written"), "{error}");
    // The second cell of a call that charges both.
    let both =
        [Algorithm::FixedWindow, Algorithm::SlidingWindowLog].map(|algorithm| (check(algorithm), true));
    let both = charging(Charging::AllOrNone, "b", &both);
    assert_eq!(both.cells.len(), 2);
    permit(&redis, &["-rpush"]);
    let error = store.decide(&both).await.expect_err("it is not permitted");
    assert!(!error.charged_nothing() && error.to_string().contains("half written"), "{error}");
}
