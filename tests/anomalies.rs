//! Detection of unusual traffic: what instances share, and a fleet in real time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;
use tollgate::{
    anomalies::Sensitivity,
    clock::Clock,
    control::{Baselines, Control, RulesSource},
};
use tollgate_anomaly::{Counts, Series};

use crate::support::{
    http,
    redis::{Redis, settings},
    tollgate::{Tollgate, request, rules},
};

const RULES: &str = "domain: edge\ndescriptors:\n\
                     - key: api_key\n  rate_limit: {unit: second, requests_per_unit: 1000000}\n";

/// Anomalies that one instance of the fleet found.
pub(crate) fn view(now_ms: u64) -> Value {
    let record = |rule: Option<&str>, kind: &str, ended: Option<u64>, observed: f64, expected: f64| {
        json!({
            "domain": "edge", "rule": rule, "kind": kind, "since_ms": now_ms - 600_000, "ended_at_ms": ended,
            "is_accepted": false, "observed": observed, "expected": expected, "low": expected * 0.6,
            "high": expected * 1.5,
        })
    };
    json!({
        "evaluated_at_ms": now_ms, "is_complete": true, "learned": 7, "learning": 2,
        "active": [record(Some("api_key"), "rate_high", None, 12_000.0, 1_000.0)],
        "recent": [record(None, "denied_share_high", Some(now_ms - 60_000), 0.4, 0.02)],
    })
}

pub(crate) fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}

fn anomalies(tollgate: &Tollgate) -> Value {
    let answer = http::get(&tollgate.admin_url("/api/v1/anomalies"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

#[tokio::test]
async fn every_instance_shows_what_one_found() {
    let (redis, config) = (Redis::start(), rules(RULES));
    let url = redis.url();
    let control = Control::redis(RulesSource::Redis, &settings(&url)).expect("valid settings");
    let shared = ["--store", &url, "--store-timeout", "500ms"];
    let on = Tollgate::spawn(config.path(), &shared);
    let off = Tollgate::spawn(config.path(), &[&shared[..], &["--anomalies", "off"]].concat());
    on.wait_until_ready();
    off.wait_until_ready();
    let empty = anomalies(&on);
    assert_eq!((&empty["sensitivity"], &empty["evaluated_at_ms"]), (&json!("medium"), &json!(0)));
    let found = view(now_ms());
    control.store_anomalies(found.to_string()).await.expect("stored");
    for (instance, sensitivity) in [(&on, "medium"), (&off, "off")] {
        let shown = anomalies(instance);
        assert_eq!(shown["sensitivity"], sensitivity);
        for field in ["active", "recent", "learned", "learning", "evaluated_at_ms", "is_complete"] {
            assert_eq!(shown[field], found[field], "{field}");
        }
    }
    // That of another release.
    control.store_anomalies("{\"active\": 7}".to_owned()).await.expect("stored");
    assert_eq!(anomalies(&on)["active"], json!([]));
}

#[test]
fn an_instance_with_the_memory_store_has_a_view_of_its_own() {
    let config = rules(RULES);
    let tollgate = Tollgate::start(config.path(), &["--store", "memory", "--anomalies", "high"]);
    let shown = anomalies(&tollgate);
    assert_eq!((&shown["sensitivity"], &shown["active"]), (&json!("high"), &json!([])));
    let metrics = http::get(&tollgate.url("/metrics")).body;
    assert!(metrics.contains("tollgate_anomalies_total{kind=\"rate_high\"} 0"), "{metrics}");
}

/// Baselines of nine days with this rate per minute, as of now.
fn baselines(rate: u64) -> Baselines {
    let now = now_ms() / 60_000;
    let mut series = Series::default();
    for minute in now - 9 * 1_440..now {
        series.observe(minute, Some(Counts { hits: rate, denied: 0 }), Sensitivity::Medium);
    }
    ["4:edge:", "4:edge:api_key"].map(|name| (name.to_owned(), series.to_record())).into()
}

/// Waits for minutes, and asserts that it was not in vain.
async fn within(minutes: u64, what: &str, holds: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60 * minutes), "in vain: {what}");
        sleep(Duration::from_secs(1)).await;
    }
    begun.elapsed()
}

/// Two instances in real time: calls at ten times the usual rate are found, and the anomaly is continued by the other
/// instance when the one that evaluates stops. `cargo test --test integration -- --ignored --nocapture a_fleet_finds`
#[tokio::test]
#[ignore = "takes 15 minutes"]
async fn a_fleet_finds_more_traffic_and_continues_without_an_instance() {
    let (redis, config) = (Redis::start(), rules(RULES));
    let url = redis.url();
    let control = Control::redis(RulesSource::Redis, &settings(&url)).expect("valid settings");
    control.store_baselines(&baselines(600), &[]).await.expect("stored");
    let start = || Tollgate::start(config.path(), &["--store", &url, "--store-timeout", "500ms"]);
    let (one, other) = (start(), start());
    let mut calls = Vec::new();
    for instance in [&one, &other] {
        let mut client = instance.client().await;
        calls.push(tokio::spawn(async move {
            // 50 a second from each: ten times the usual rate.
            while client.call(request("edge", &[&[("api_key", "a")]])).await.is_ok() {
                sleep(Duration::from_millis(20)).await;
            }
        }));
    }
    let active = |instance: &Tollgate| anomalies(instance)["active"].as_array().expect("a list").len();
    let took = within(8, "found", || active(&one) == 2 && active(&other) == 2).await;
    println!("found after {took:?}: {}", anomalies(&one));
    let gauge = |instance: &Tollgate| {
        http::get(&instance.url("/metrics")).body.contains("tollgate_anomaly_active{domain=\"edge\"")
    };
    assert!(gauge(&one) != gauge(&other), "one instance evaluates");
    let events = http::get(&one.admin_url("/api/v1/events")).body;
    assert_eq!(events.matches("\"rate_high\"").count(), 2, "{events}");
    let (evaluator, rest) = if gauge(&one) { (one, other) } else { (other, one) };
    let since = anomalies(&rest)["active"][0]["since_ms"].clone();
    drop(evaluator);
    let took = within(6, "continued", || gauge(&rest)).await;
    println!("continued after {took:?}");
    assert_eq!(anomalies(&rest)["active"][0]["since_ms"], since);
    for calls in calls {
        calls.abort();
    }
}
