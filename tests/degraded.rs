//! Responses in degraded mode.

use prost_types::value::Kind;

use crate::support::{prelude::*, timing::keeps_to_async};

const RULES: &str = "
domain: d
descriptors:
- {key: plain, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: passes, rate_limit: {unit: year, requests_per_unit: 10, on_store_error: allow}}
- {key: waits, rate_limit: {unit: year, requests_per_unit: 10, on_store_error: deny}}
- {key: fails, rate_limit: {unit: year, requests_per_unit: 10, on_store_error: error}}
- {key: watched, rate_limit: {unit: year, requests_per_unit: 10, on_store_error: deny}, shadow_mode: true}
- {key: seen, rate_limit: {unit: year, requests_per_unit: 10, on_store_error: error}, shadow_mode: true}
- {key: bucket, rate_limit: {unit: year, requests_per_unit: 10, algorithm: token_bucket, burst: 6}}
- {key: place, rate_limit: {requests_per_unit: 4, algorithm: concurrency}}
";

/// Sends a request for one hit on each of these keys.
async fn send(client: &mut Client, keys: &[&str]) -> Result<RateLimitResponse, tonic::Status> {
    let entries: Vec<_> = keys.iter().map(|key| [(*key, "me")]).collect();
    let descriptors: Vec<_> = entries.iter().map(<[_; 1]>::as_slice).collect();
    client.call(request("d", &descriptors)).await
}

/// Waits until responses are no longer degraded.
async fn recovers(client: &mut Client) {
    until("it does not recover", async || {
        mark(&send(client, &["plain"]).await.expect("an answer")).is_none()
    })
    .await;
}

async fn code(client: &mut Client, keys: &[&str]) -> Code {
    send(client, keys).await.expect("an answer").overall_code()
}

/// The number of 20 requests that pass.
async fn passing(client: &mut Client, key: &str) -> usize {
    let mut passing = 0;
    for _ in 0..20 {
        passing += usize::from(code(client, &[key]).await == Code::Ok);
    }
    passing
}

/// The policy and the reason in the headers of a degraded response.
fn mark(answer: &RateLimitResponse) -> Option<(String, String)> {
    let text = |kind: &Option<Kind>| match kind {
        Some(Kind::StringValue(text)) => text.clone(),
        other => panic!("no text: {other:?}"),
    };
    let header = answer.response_headers_to_add.iter().find(|header| header.key == "x-ratelimit-policy");
    let metadata = answer.dynamic_metadata.as_ref().and_then(|metadata| metadata.fields.get("degraded"));
    assert_eq!(header.map(|header| &*header.value), metadata.map(|_| "degraded"));
    match &metadata?.kind {
        Some(Kind::StructValue(degraded)) => {
            let [policy, reason] = ["policy", "reason"].map(|key| text(&degraded.fields[key].kind));
            Some((policy, reason))
        }
        other => panic!("no structure: {other:?}"),
    }
}

/// The remaining hits in the headers of a response.
fn remaining(answer: &RateLimitResponse) -> Option<&str> {
    let header = answer.response_headers_to_add.iter().find(|header| header.key == "X-RateLimit-Remaining");
    header.map(|header| &*header.value)
}

#[tokio::test]
async fn each_limit_follows_its_on_store_error_policy_while_redis_is_down() {
    let redis = Redis::start();
    let arguments = [
        "--store",
        &redis.url(),
        "--store-timeout",
        "2s",
        "--on-store-error",
        "local",
        "--replicas-hint",
        "2",
        "--response-headers=x-ratelimit",
        "--problem-body",
    ];
    let (tollgate, mut client) = Tollgate::serving_one(RULES, &arguments).await;
    let whole = send(&mut client, &["plain"]).await.expect("an answer");
    assert_eq!((whole.overall_code(), mark(&whole)), (Code::Ok, None));
    drop(redis);
    assert_eq!(passing(&mut client, "plain").await, 4, "half of what remained is for the other instance");
    assert_eq!(passing(&mut client, "bucket").await, 3);
    assert_eq!(passing(&mut client, "passes").await, 20);
    assert_eq!(passing(&mut client, "waits").await, 0);
    assert_eq!(passing(&mut client, "watched").await, 20);
    assert_eq!(passing(&mut client, "seen").await, 20, "what only watches fails nothing");
    let denied = send(&mut client, &["plain"]).await.expect("an answer");
    let (policy, reason) = mark(&denied).expect("it is marked");
    assert_eq!((denied.overall_code(), &*policy), (Code::OverLimit, "local"));
    assert!(["unreachable", "disconnected"].contains(&&*reason), "{reason}");
    assert!(denied.statuses[0].duration_until_reset.expect("a time").seconds > 1);
    let waits = send(&mut client, &["waits"]).await.expect("an answer");
    assert_eq!(waits.response_headers_to_add.iter().filter(|header| header.key == "Retry-After").count(), 1);
    assert_eq!(remaining(&waits), Some("0"), "that of the share");
    let body: Value = serde_json::from_slice(&waits.raw_body).expect("JSON");
    assert!(body["type"].as_str().expect("a text").ends_with("#temporary-reduced-capacity"), "{body}");
    assert_eq!(body["detail"], "Rate limits cannot be checked at present; retry in 1 second.");

    let error = send(&mut client, &["passes", "fails"]).await.expect_err("one of them fails");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert_eq!(code(&mut client, &["fails", "waits"]).await, Code::OverLimit, "denied, whatever else");
    let page = tollgate.metrics();
    for policy in ["local", "allow", "deny", "error"] {
        let series = format!("tollgate_degraded_total{{policy=\"{policy}\",");
        let mut counts = page.lines().filter(|line| line.starts_with(&series));
        assert!(counts.any(|line| !line.ends_with(" 0")), "{page}");
    }
}

#[tokio::test]
async fn local_permits_are_released_locally() {
    let redis = Redis::start();
    let url = redis.url();
    let arguments = ["--store", &url, "--on-store-error", "local", "--replicas-hint", "2"];
    let (_tollgate, mut client) = Tollgate::serving_one(RULES, &arguments).await;
    drop(redis);
    let mut leases = Vec::new();
    for _ in 0..2 {
        let answer = send(&mut client, &["place"]).await.expect("an answer");
        assert_eq!(answer.overall_code(), Code::Ok);
        leases.push(lease_of(&answer).expect("a lease"));
    }
    assert_eq!(code(&mut client, &["place"]).await, Code::OverLimit, "this instance has two of four places");
    // A request that another limit denies keeps none, nor does it count.
    let release = request("d", &[&[("place", "me"), ("lease", &leases[0])]]);
    client.call(release).await.expect("an answer");
    assert_eq!(code(&mut client, &["place", "waits"]).await, Code::OverLimit);
    assert_eq!(code(&mut client, &["place"]).await, Code::Ok, "one permit was released");
    assert_eq!(code(&mut client, &["place"]).await, Code::OverLimit);
}

#[tokio::test]
async fn a_local_permit_is_free_in_the_next_outage_once_redis_confirmed_its_release() {
    let port = free_port();
    let mut redis = Some(Redis::start_on(port, &[]));
    let url = format!("redis://127.0.0.1:{port}");
    let arguments =
        ["--store", &url, "--store-timeout", "2s", "--on-store-error", "local", "--replicas-hint", "4"];
    let (_tollgate, mut client) = Tollgate::serving_one(RULES, &arguments).await;
    for _ in 0..2 {
        redis.take();
        let answer = send(&mut client, &["place"]).await.expect("an answer");
        assert_eq!((answer.overall_code(), mark(&answer).is_some()), (Code::Ok, true));
        let lease = lease_of(&answer).expect("a lease");
        redis = Some(Redis::start_on(port, &[]));
        recovers(&mut client).await;
        client.call(request("d", &[&[("place", "me"), ("lease", &lease)]])).await.expect("an answer");
    }
}

#[tokio::test]
async fn instances_count_each_other_while_redis_works() {
    let redis = Redis::start();
    let url = redis.url();
    let arguments = ["--store", &url, "--on-store-error", "local"];
    let both = [(); 2].map(|()| Tollgate::serving(RULES, &arguments));
    for tollgate in &both {
        let are_both = async || tollgate.metric("tollgate_replicas") == Some(2.0);
        until("they do not find each other", are_both).await;
    }
    drop(redis);
    for tollgate in &both {
        assert_eq!(passing(&mut tollgate.client().await, "plain").await, 5);
    }
}

#[tokio::test]
async fn without_redis_at_the_start_the_policy_applies_and_readiness_follows_its_setting() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let headers = "--response-headers=x-ratelimit";
    let arguments = ["--store", &url, "--on-store-error", "local", "--ready-without-store", headers];
    let (tollgate, mut client) = Tollgate::serving_one(RULES, &arguments).await;
    for (key, left) in [("bucket", "5"), ("waits", "0")] {
        let answer = send(&mut client, &[key]).await.expect("an answer");
        assert_eq!((remaining(&answer), mark(&answer).is_some()), (Some(left), true), "{key}");
    }
    assert_eq!(remaining(&send(&mut client, &["passes"]).await.expect("an answer")), None, "not counted");
    assert_eq!(passing(&mut tollgate.client().await, "plain").await, 10, "alone, as far as it knows");
}

#[tokio::test]
async fn a_decision_meets_the_deadline_of_its_caller() {
    let redis = Redis::start();
    let arguments = ["--store", &redis.url(), "--store-timeout", "5s", "--on-store-error", "local"];
    let (_tollgate, mut client) = Tollgate::serving_one(RULES, &arguments).await;
    assert_eq!(code(&mut client, &["plain"]).await, Code::Ok);
    keeps_to_async(Duration::from_secs(1), "the answer", async || {
        redis.signal("CONT");
        recovers(&mut client).await;
        redis.signal("STOP");
        let begun = Instant::now();
        let patient = client.call_within(Duration::from_secs(1), request("d", &[&[("plain", "me")]]));
        let Ok(answer) = patient.await else { return Duration::MAX };
        assert_eq!(mark(&answer), Some(("local".to_owned(), "timeout".to_owned())));
        begun.elapsed()
    })
    .await;
    redis.signal("CONT");
}
