//! Limits with `scope: primary`.

use std::time::Duration;

use tollgate::proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response::Code,
};
use tonic::Status;

use super::{NAMES, Network, Roles, World};
use crate::{
    control::until,
    support::{
        cluster::wait,
        http,
        tollgate::{Client, request},
    },
};

/// Windows that end in no test.
const RULES: &str = "
domain: web
defaults: {unit: year, requests_per_unit: 5}
descriptors:
- {key: fixed, rate_limit: {scope: primary}}
- {key: sliding, rate_limit: {scope: primary, algorithm: sliding_window}}
- {key: log, rate_limit: {scope: primary, algorithm: sliding_window_log}}
- {key: bucket, rate_limit: {scope: primary, algorithm: token_bucket}}
- {key: overdraft, rate_limit: {scope: primary, overdraft: true}}
- {key: permits, rate_limit: {scope: primary, algorithm: concurrency, requests_per_unit: 5, lease_ttl: 1h}}
- {key: deny, rate_limit: {scope: primary, on_store_error: deny}}
- {key: allow, rate_limit: {scope: primary, on_store_error: allow}}
- {key: local, rate_limit: {scope: primary, requests_per_unit: 9, on_store_error: local}}
- {key: regional, rate_limit: {}}
";

/// Longer than a busy machine takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Three regions with a primary one.
fn start(primary: usize) -> World {
    let roles = Roles { writing: None, primary: Some(primary) };
    World::start_with(RULES, Network::NEAR, &[], roles)
}

async fn call(client: &mut Client, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    client.call_within(TIMEOUT, request).await
}

/// Whether a hit passes.
async fn passes(client: &mut Client, key: &str, value: &str) -> bool {
    let answer = call(client, request("web", &[&[(key, value)]])).await;
    answer.unwrap_or_else(|error| panic!("{key}: {error}")).overall_code() == Code::Ok
}

async fn admitted(client: &mut Client, key: &str, value: &str, hits: usize) -> usize {
    let mut sum = 0;
    for _ in 0..hits {
        sum += usize::from(passes(client, key, value).await);
    }
    sum
}

/// Waits until a region decides with the primary region.
async fn is_decided(world: &World, region: usize, value: &str) {
    until("a region does not reach the primary one", async || {
        let mut client = world.tollgate(region).client().await;
        call(&mut client, request("web", &[&[("fixed", value)]])).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn three_regions_share_the_counters_of_the_primary_one_in_each_algorithm() {
    let world = start(1);
    let mut clients = world.clients().await;
    for key in ["fixed", "sliding", "log", "bucket", "overdraft"] {
        let mut sides = [0; 3];
        for round in 0..3 {
            for (side, client) in sides.iter_mut().zip(&mut clients) {
                *side += admitted(client, key, "v", 1 + round % 2).await;
            }
        }
        assert_eq!(sides.iter().sum::<usize>(), 5, "{key}: {sides:?}");
        assert!(sides.iter().all(|side| *side > 0), "{key}: {sides:?}");
    }
    for client in &mut clients {
        assert_eq!(admitted(client, "regional", "v", 6).await, 5, "a regional limit is each region's");
    }
    let answer = call(&mut clients[2], request("web", &[&[("fixed", "v")], &[("regional", "other")]])).await;
    let statuses = answer.expect("an answer").statuses;
    assert_eq!(statuses[0].limit_remaining, 0);
    assert_eq!(statuses[1].limit_remaining, 4, "decided here meanwhile");
    let decided = |region: usize| {
        let series =
            format!("tollgate_region_primary_calls_total{{region=\"{}\",result=\"decided\"}} ", NAMES[1]);
        let page = http::get(&world.tollgate(region).url("/metrics")).body;
        page.lines().find_map(|line| line.strip_prefix(&*series)?.parse::<u64>().ok())
    };
    assert!(decided(0) > Some(5) && decided(1).is_none(), "{:?} {:?}", decided(0), decided(1));
}

#[tokio::test]
async fn permits_are_acquired_and_released_from_all_regions() {
    let world = start(0);
    let mut clients = world.clients().await;
    let mut leases = Vec::new();
    for at in 0..5 {
        let answer =
            call(&mut clients[at % 3], request("web", &[&[("permits", "v")]])).await.expect("an answer");
        assert_eq!(answer.overall_code(), Code::Ok);
        let metadata = answer.dynamic_metadata.expect("a lease").fields;
        let lease = format!("{metadata:?}");
        let lease = lease.split("StringValue(\"").nth(1).and_then(|rest| rest.split('"').next());
        leases.push(lease.expect("a text").to_owned());
    }
    for client in &mut clients {
        assert!(!passes(client, "permits", "v").await);
    }
    let release = request("web", &[&[("permits", "v"), ("lease", &leases[0])]]);
    call(&mut clients[2], release).await.expect("released");
    assert!(passes(&mut clients[1], "permits", "v").await, "released by another region than acquired it");
    assert!(!passes(&mut clients[0], "permits", "v").await);
}

#[tokio::test]
async fn without_the_primary_region_each_rule_decides_as_it_states() {
    let mut world = start(0);
    is_decided(&world, 2, "before").await;
    world.set_cut_off(0, true);
    for region in [1, 2] {
        world.wait_until_missed(region, 0);
    }
    let mut client = world.tollgate(2).client().await;
    assert!(!passes(&mut client, "deny", "v").await && passes(&mut client, "allow", "v").await);
    assert_eq!(admitted(&mut client, "local", "v", 9).await, 3, "the region's share of it");
    let error = call(&mut client, request("web", &[&[("fixed", "v")]])).await.expect_err("states `error`");
    assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
    assert_eq!(admitted(&mut client, "regional", "v", 6).await, 5, "not concerned");
    assert!(world.metric("tollgate_region_primary_calls_total") > 0.0);
    let mut primary = world.tollgate(0).client().await;
    assert_eq!(admitted(&mut primary, "fixed", "alone", 6).await, 5, "it decides for its own callers");

    world.set_cut_off(0, false);
    world.wait_until_connected();
    until("the primary region decides again", async || {
        let mut client = world.tollgate(2).client().await;
        call(&mut client, request("web", &[&[("fixed", "alone")]]))
            .await
            .is_ok_and(|answer| answer.overall_code() == Code::OverLimit)
    })
    .await;

    world.kill(0);
    world.wait_until_missed(2, 0);
    let mut client = world.tollgate(2).client().await;
    assert!(!passes(&mut client, "deny", "w").await && passes(&mut client, "allow", "w").await);
    world.launch(0);
    is_decided(&world, 2, "after").await;
}

#[tokio::test]
async fn another_region_becomes_the_primary_one_once_all_have_the_table() {
    let mut world = start(0);
    let mut clients = world.clients().await;
    assert_eq!(admitted(&mut clients[2], "fixed", "v", 6).await, 5);
    world.set_cut_off(1, true);
    world.wait_until_missed(2, 1);
    world.primary = Some(2);
    world.change_table(|_| ());
    for region in [0, 1, 2] {
        wait("the table is not active", || world.view(region)["generation"] == 2);
    }
    // A region that is cut off may ask the former one.
    for at in [0, 2] {
        let error = call(&mut clients[at], request("web", &[&[("fixed", "w")]]))
            .await
            .expect_err("no region decides");
        assert!(
            error.message().contains("changing") || error.message().contains("another region"),
            "{error}"
        );
    }
    // Nor does an instance that starts with the new table alone.
    let mut store = world.regions[2].redis.connect();
    wait("the change is not recorded", || {
        let record: Option<String> =
            redis::cmd("GET").arg("{tollgate-rules}:region-primary").query(&mut store).expect("a reply");
        record.is_some_and(|record| record == format!("2 {} pending", NAMES[2]))
    });
    world.regions[2].tollgate = None;
    world.launch(2);
    let mut clients = world.clients().await;
    let error =
        call(&mut clients[2], request("web", &[&[("fixed", "w")]])).await.expect_err("no region decides");
    assert!(error.message().contains("changing"), "{error}");
    world.set_cut_off(1, false);
    world.wait_until_connected();
    for region in [0, 1, 2] {
        is_decided(&world, region, &format!("from {region}")).await;
    }
    let mut sum = 0;
    for client in &mut clients {
        sum += admitted(client, "fixed", "v", 3).await;
    }
    assert_eq!(sum, 5, "its counters began unused, for all regions");
    assert_eq!(world.view(1)["primary"], NAMES[2]);
}
