//! Logs and metrics of outages.

use super::*;
use crate::topologies::misbehaving_nodes::Lines;

#[tokio::test]
async fn an_outage_is_logged_once_however_often_the_server_fails() {
    let (lines, _guard) = Lines::keep();
    let redis = Redis::start();
    let store = brief(&redis.url()).await;
    let load = Load::start(&store, some_names());
    for _ in 0..4 {
        redis.signal("STOP");
        sleep(Duration::from_millis(300)).await;
        redis.signal("CONT");
        sleep(Duration::from_millis(200)).await;
    }
    load.end().await;
    let log = async || {
        drop(timed(&store, "a").await);
        lines.text()
    };
    read_until(log, |log| log.contains("Redis responds again") && log.contains("Redis recovered")).await;
    for message in [
        "Redis unresponsive",
        "Redis responds again",
        "Redis unavailable; deciding in degraded mode",
        "Redis recovered",
    ] {
        assert_eq!(lines.count(message), 1, "{message}: {}", lines.text());
    }
    assert_eq!(lines.count("\n"), 4, "{}", lines.text());
}

#[tokio::test]
async fn a_failure_that_concerns_no_caller_is_not_logged_as_an_outage() {
    let (lines, _guard) = Lines::keep();
    let redis = Redis::start();
    let store = brief(&redis.url()).await;
    redis.signal("STOP");
    let call = one("own", Hits::ONE);
    store.decide_own(&call).await.expect_err("stopped");
    assert_eq!(lines.count("Redis unavailable"), 0, "{}", lines.text());
    timed(&store, "a").await.result.expect_err("stopped");
    assert_eq!(lines.count("Redis unavailable"), 1, "{}", lines.text());
    redis.signal("CONT");
    // It shows when the outage ends, as calls of others do.
    until("the end of the outage is not logged", async || {
        drop(store.decide_own(&call).await);
        lines.count("Redis recovered") == 1
    })
    .await;
}

#[tokio::test]
async fn a_server_that_replies_only_with_errors_is_logged_once() {
    let (lines, _guard) = Lines::keep();
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction", "--maxmemory", "1000"]);
    let store = brief(&redis.url()).await;
    let load = Load::start(&store, some_names());
    sleep(Duration::from_millis(1_500)).await;
    let all = load.end().await;
    assert!(all.len() > 100 && all.iter().all(|done| done.result.is_err()));
    assert_eq!(lines.count("Redis unavailable"), 1, "{}", lines.text());
    // On a busy machine it may also be detected as silent, which is logged too.
    assert!(lines.count("\n") <= 3, "{}", lines.text());
}

#[tokio::test]
async fn metrics_report_an_outage_for_as_long_as_it_lasts() {
    let redis = Redis::start();
    let arguments = ["--store", &redis.url(), "--store-timeout", "500ms"];
    let tollgate = Tollgate::serving(&yearly(1_000), &arguments);
    let metric = |name: &str| tollgate.sum_of(name);
    let mut client = tollgate.client().await;
    assert!(client.passes("d", &[("k", "v")]).await);
    redis.signal("STOP");
    until("the breaker does not open", async || {
        client.call(request("d", &[&[("k", "v")]])).await.expect_err("no answer");
        metric("tollgate_redis_breakers_open") >= Some(1.0)
    })
    .await;
    assert!(metric("tollgate_redis_breaker_opened_total") >= Some(1.0));
    redis.signal("CONT");
    let is_closed = async || metric("tollgate_redis_breakers_open") == Some(0.0);
    until("the breaker does not close", is_closed).await;
    assert!(client.passes("d", &[("k", "v")]).await);
}
