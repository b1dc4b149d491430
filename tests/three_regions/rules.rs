//! Rule versions, lists and switches that one region writes.

use super::*;
use crate::control::limit;

/// Applies a version in a region.
fn apply(world: &World, region: usize, based_on: u64, version: u32) -> http::Answer {
    let change = json!({"based_on": based_on, "comment": "c", "files": {"rules.yaml": limit(version)}});
    let url = world.tollgate(region).admin_url("/api/v1/versions");
    http::post(&url, &change.to_string())
}

/// Puts a record.
fn put(world: &World, region: usize, record: &Value) -> http::Answer {
    let url = world.tollgate(region).admin_url("/api/v1/records");
    http::send("PUT", &url, &[], Some(&http::stated(record).to_string()))
}

/// Denies a value in all regions.
fn deny(world: &World, region: usize, value: &str) -> http::Answer {
    let entry = json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": [{"key": "k", "value": value}],
        "reason": "r", "force": true});
    put(world, region, &entry)
}

/// Overrides the limit of a value.
fn override_limit(world: &World, region: usize, value: &str, limit: u32) -> http::Answer {
    let change = json!({"kind": "override", "domain": "web", "rule": "k", "descriptor": [{"key": "k", "value": value}],
        "rate_limit": {"requests_per_unit": limit}, "reason": "r"});
    put(world, region, &change)
}

/// Waits until a region enforces a limit for a value.
async fn limits(world: &World, region: usize, value: &str, limit: u32) {
    until("a version or an override is active in a region", async || {
        let mut client = world.tollgate(region).client().await;
        let Ok(answer) = client.call(request("web", &[&[("k", value)]])).await else { return false };
        let stated = answer.statuses.first().and_then(|status| status.current_limit.as_ref());
        stated.is_some_and(|stated| stated.requests_per_unit == limit)
    })
    .await;
}

/// Waits until a region enforces a version.
async fn enforces(world: &World, region: usize, version: u32) {
    limits(world, region, "v", version).await;
}

/// Waits until a region denies a value.
async fn denies(world: &World, region: usize, value: &str) {
    until("an entry is active in a region", async || {
        let mut client = world.tollgate(region).client().await;
        let answer = client.call(request("web", &[&[("k", value)]])).await;
        answer.is_ok_and(|answer| answer.overall_code() == Code::OverLimit)
    })
    .await;
}

/// State of the copy of a region.
fn copy(world: &World, region: usize) -> Value {
    world.tollgate(region).api("/status")["rules"]["copy"].clone()
}

/// Tries changes of each kind in regions that copy the rules.
fn assert_changes_are_refused(world: &World) {
    for refused in [apply(world, 1, 2, 3), deny(world, 2, "worse"), override_limit(world, 1, "vip", 71)] {
        assert_eq!(refused.status, 409, "{}", refused.body);
        let body = refused.json();
        assert_eq!(body["error"]["code"], "other_region");
        assert!(body["error"]["message"].as_str().expect("a text").contains(NAMES[0]), "{body}");
    }
}

#[tokio::test]
async fn a_region_that_is_cut_off_serves_its_last_rules_and_catches_up_by_itself() {
    let mut world = World::start(&limit(1), Network::NEAR, &["--rules", "redis"], Some(0));
    for region in 0..3 {
        enforces(&world, region, 1).await;
    }
    assert_eq!(apply(&world, 0, 1, 2).status, 201);
    assert_eq!(deny(&world, 0, "bad").status, 200);
    for region in 0..3 {
        enforces(&world, region, 2).await;
        denies(&world, region, "bad").await;
    }
    assert_eq!(override_limit(&world, 0, "vip", 70).status, 200);
    for region in 0..3 {
        limits(&world, region, "vip", 70).await;
    }
    assert_eq!(copy(&world, 0), Value::Null, "the writing region copies nothing");
    assert_eq!(copy(&world, 1)["region"], NAMES[0]);
    assert_changes_are_refused(&world);

    world.set_cut_off(2, true);
    until("the region shows that it is cut off", async || copy(&world, 2)["problem"].is_string()).await;
    let compared = copy(&world, 2)["compared_ms"].as_u64().expect("it was connected");
    assert_eq!(apply(&world, 0, 2, 3).status, 201);
    assert_eq!(deny(&world, 0, "worse").status, 200);
    assert_eq!(override_limit(&world, 0, "vip", 80).status, 200);
    limits(&world, 1, "vip", 80).await;
    enforces(&world, 1, 3).await;
    denies(&world, 1, "worse").await;
    // Also an instance that starts meanwhile.
    world.regions[2].tollgate = None;
    world.launch(2);
    enforces(&world, 2, 2).await;
    denies(&world, 2, "bad").await;
    limits(&world, 2, "vip", 70).await;
    assert!(world.tollgate(2).client().await.passes("web", &[("k", "worse")]).await, "it was made meanwhile");
    let page = http::get(&world.tollgate(2).url("/metrics")).body;
    let metric =
        page.lines().find_map(|line| line.strip_prefix("tollgate_rules_compared_timestamp_seconds "));
    let metric: u64 = metric.expect("exported").parse().expect("a number");
    assert_eq!(metric, compared / 1_000, "the age of the copy is exported");

    world.set_cut_off(2, false);
    enforces(&world, 2, 3).await;
    denies(&world, 2, "worse").await;
    limits(&world, 2, "vip", 80).await;
    until("the copy is compared again", async || {
        let copy = copy(&world, 2);
        copy["compared_ms"].as_u64() > Some(compared) && copy["problem"].is_null()
    })
    .await;
}

#[tokio::test]
async fn another_region_writes_the_rules_when_the_table_names_it() {
    let mut world = World::start(&limit(1), Network::NEAR, &["--rules", "redis"], Some(0));
    for region in 0..3 {
        enforces(&world, region, 1).await;
    }
    world.kill(0);
    world.writing = Some(1);
    world.change_table(|rows| rows[0].is_lost = true);
    until("the other region accepts changes", async || apply(&world, 1, 1, 2).status == 201).await;
    for region in [1, 2] {
        enforces(&world, region, 2).await;
    }
    // It returns with an empty Redis and the new table.
    world.change_table(|rows| rows[0].is_lost = false);
    world.launch(0);
    enforces(&world, 0, 2).await;
}
