//! Limits with `scope: primary`.

use tonic::Status;

use super::*;

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

/// Whether a hit passes; `None` if it is not decided, as while a busy machine delays messages between regions.
async fn passes(client: &mut Client, key: &str, value: &str) -> Option<bool> {
    let answer = call(client, request("web", &[&[(key, value)]])).await.ok()?;
    Some(answer.overall_code() == Code::Ok)
}

/// The number of hits that pass; `None` if one is not decided, and may count nevertheless.
async fn admitted(client: &mut Client, key: &str, value: &str, hits: usize) -> Option<usize> {
    let mut sum = 0;
    for _ in 0..hits {
        sum += usize::from(passes(client, key, value).await?);
    }
    Some(sum)
}

/// Repeats what needs every hit decided with other counters, until it is.
async fn decided<T>(world: &World, part: impl AsyncFn(&str) -> Option<T>) -> T {
    for attempt in 0..20 {
        if let Some(result) = part(&format!("v{attempt}")).await {
            return result;
        }
        world.wait_until_connected();
    }
    panic!("hits are not decided");
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
    let clients = world.clients().await;
    for key in ["fixed", "sliding", "log", "bucket", "overdraft"] {
        let sides = decided(&world, async |value| {
            let mut sides = [0; 3];
            for round in 0..3 {
                for (side, client) in sides.iter_mut().zip(&clients) {
                    *side += admitted(&mut client.clone(), key, value, 1 + round % 2).await?;
                }
            }
            Some(sides)
        })
        .await;
        assert_eq!(sides.iter().sum::<usize>(), 5, "{key}: {sides:?}");
        assert!(sides.iter().all(|side| *side > 0), "{key}: {sides:?}");
    }
    for client in &clients {
        let admitted = async |value: &str| admitted(&mut client.clone(), "regional", value, 6).await;
        assert_eq!(decided(&world, admitted).await, 5, "a regional limit is each region's");
    }
    let statuses = decided(&world, async |value| {
        let client = &mut clients[2].clone();
        admitted(client, "fixed", value, 5).await?;
        let both = request("web", &[&[("fixed", value)], &[("regional", &format!("other {value}"))]]);
        Some(call(client, both).await.ok()?.statuses)
    })
    .await;
    assert_eq!(statuses[0].limit_remaining, 0);
    assert_eq!(statuses[1].limit_remaining, 4, "decided here meanwhile");
    let counted = |region: usize| {
        let series =
            format!("tollgate_region_primary_calls_total{{region=\"{}\",result=\"decided\"}} ", NAMES[1]);
        let page = http::get(&world.tollgate(region).url("/metrics")).body;
        page.lines().find_map(|line| line.strip_prefix(&*series)?.parse::<u64>().ok())
    };
    assert!(counted(0) > Some(5) && counted(1).is_none(), "{:?} {:?}", counted(0), counted(1));
}

#[tokio::test]
async fn permits_are_acquired_and_released_from_all_regions() {
    let world = start(0);
    let clients = world.clients().await;
    decided(&world, async |value| {
        let (mut clients, mut leases) = (clients.clone(), Vec::new());
        for at in 0..5 {
            let acquire = request("web", &[&[("permits", value)]]);
            let answer = call(&mut clients[at % 3], acquire).await.ok()?;
            assert_eq!(answer.overall_code(), Code::Ok);
            let metadata = answer.dynamic_metadata.expect("a lease").fields;
            let lease = format!("{metadata:?}");
            let lease = lease.split("StringValue(\"").nth(1).and_then(|rest| rest.split('"').next());
            leases.push(lease.expect("a text").to_owned());
        }
        for client in &mut clients {
            assert!(!passes(client, "permits", value).await?);
        }
        let release = request("web", &[&[("permits", value), ("lease", &leases[0])]]);
        call(&mut clients[2], release).await.ok()?;
        assert!(
            passes(&mut clients[1], "permits", value).await?,
            "released by another region than acquired it"
        );
        assert!(!passes(&mut clients[0], "permits", value).await?);
        Some(())
    })
    .await;
}

#[tokio::test]
async fn without_the_primary_region_each_rule_decides_as_it_states() {
    let mut world = start(0);
    is_decided(&world, 2, "before").await;
    world.set_cut_off(0, true);
    for region in [1, 2] {
        world.wait_until_missed(region, 0);
    }
    let client = &mut world.tollgate(2).client().await;
    assert_eq!(
        [passes(client, "deny", "v").await, passes(client, "allow", "v").await],
        [Some(false), Some(true)]
    );
    assert_eq!(admitted(client, "local", "v", 9).await, Some(3), "the region's share of it");
    let error = call(client, request("web", &[&[("fixed", "v")]])).await.expect_err("states `error`");
    assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
    assert_eq!(admitted(client, "regional", "v", 6).await, Some(5), "not concerned");
    assert!(world.metric("tollgate_region_primary_calls_total") > 0.0);
    let primary = &mut world.tollgate(0).client().await;
    assert_eq!(admitted(primary, "fixed", "alone", 6).await, Some(5), "it decides for its own callers");

    world.set_cut_off(0, false);
    world.wait_until_connected();
    until("the primary region decides again", async || {
        passes(&mut world.tollgate(2).client().await, "fixed", "alone").await == Some(false)
    })
    .await;

    world.kill(0);
    world.wait_until_missed(2, 0);
    let client = &mut world.tollgate(2).client().await;
    assert_eq!(
        [passes(client, "deny", "w").await, passes(client, "allow", "w").await],
        [Some(false), Some(true)]
    );
    world.launch(0);
    is_decided(&world, 2, "after").await;
}

const CHANGED_VALUES: [&str; 5] = ["v0", "v1", "v2", "v3", "v4"];

/// Waits until the new primary region has recorded a change that lacks region 1.
fn wait_until_recorded(world: &World) {
    wait("the new primary region has not announced the table", || {
        world.view(0)["waiting_for"] == serde_json::json!([NAMES[1]])
    });
    let mut store = world.regions[2].redis.connect();
    wait("the change is not recorded", || {
        let record: Option<String> =
            cmd("GET").arg("{tollgate-rules}:region-primary").query(&mut store).expect("a reply");
        record.is_some_and(|record| record == format!("2 {} pending", NAMES[2]))
    });
}

/// Admitted hits of each value in all regions. A counter whose hits were not all decided on a busy machine shows nothing.
async fn admitted_of_all(clients: &mut [Client]) -> Vec<usize> {
    let mut sums = Vec::new();
    for value in CHANGED_VALUES {
        let mut sum = Some(0);
        for client in &mut *clients {
            sum = sum.zip(admitted(client, "fixed", value, 3).await).map(|(sum, more)| sum + more);
        }
        sums.extend(sum);
    }
    sums
}

#[tokio::test]
async fn another_region_becomes_the_primary_one_once_all_have_the_table() {
    let mut world = start(0);
    let clients = world.clients().await;
    for value in CHANGED_VALUES {
        let sums = async || admitted(&mut world.tollgate(2).client().await, "fixed", value, 6).await;
        until("the former primary region has counted", async || sums().await == Some(0)).await;
    }
    world.set_cut_off(1, true);
    world.wait_until_missed(2, 1);
    world.primary = Some(2);
    world.change_table(|_| ());
    for region in [0, 1, 2] {
        wait("the table is not active", || world.view(region)["generation"] == 2);
    }
    // A region that is cut off may call the former one.
    for at in [0, 2] {
        until("no region decides", async || {
            let answer = call(&mut clients[at].clone(), request("web", &[&[("fixed", "w")]])).await;
            let error = answer.expect_err("the change is not finished");
            error.message().contains("changing") || error.message().contains("another region")
        })
        .await;
    }
    // Nor does an instance that starts with the new table alone. The one that it replaces counts for some time.
    wait_until_recorded(&world);
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
    let sums = admitted_of_all(&mut clients).await;
    assert!(
        !sums.is_empty() && sums.iter().all(|sum| *sum == 5),
        "{sums:?}: all began unused, for all regions"
    );
    assert_eq!(world.view(1)["primary"], NAMES[2]);
}
