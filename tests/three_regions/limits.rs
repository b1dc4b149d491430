//! Limits with `scope: global`.

use std::cell::Cell;

use super::*;

/// Windows that end in no test but those of a second.
const RULES: &str = "
domain: web
descriptors:
- key: fixed
  rate_limit: {unit: year, requests_per_unit: 90, scope: global}
- key: sliding
  rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 90, scope: global}
- key: bucket
  rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 90, scope: global}
- key: short
  rate_limit: {unit: second, requests_per_unit: 90, scope: global}
- key: regional
  rate_limit: {unit: year, requests_per_unit: 90}
";

/// The least that is admitted of 90, in whatever order the regions borrow: a loan that arrives when its borrower needs it
/// no more stays unused, and its lender has less.
const ENOUGH: usize = 30;

const KEYS: [&str; 3] = ["fixed", "sliding", "bucket"];

#[tokio::test]
async fn three_regions_admit_a_limit_together_and_never_more() {
    let world = World::start(RULES, Network::NEAR, &[], None);
    let clients = world.clients().await;
    for key in KEYS {
        // From all sides, a little at a time.
        let mut sum = 0;
        for _ in 0..10 {
            for client in &clients {
                sum += admitted(client, key, "everywhere", 10).await;
            }
        }
        assert!((ENOUGH..=90).contains(&sum), "{key}: {sum} admitted of 90");
        // From one side, and then from the others.
        let mut sides = Vec::new();
        for client in &clients {
            sides.push(admitted(client, key, "hot", 100).await);
        }
        assert!((ENOUGH..=90).contains(&sides.iter().sum()), "{key}: {sides:?} admitted of 90");
        assert!(sides[0] >= 30, "{key}: a region has its share at least: {sides:?}");
    }
    for client in &clients {
        assert_eq!(admitted(client, "regional", "a", 100).await, 90, "as without regions");
    }
}

#[tokio::test]
async fn a_partition_leaves_each_side_its_share_and_heals_by_itself() {
    let world = World::start(RULES, Network::NEAR, &[], None);
    let clients = world.clients().await;
    world.set_cut_off(2, true);
    for (region, other) in [(0, 2), (1, 2), (2, 0), (2, 1)] {
        world.wait_until_missed(region, other);
    }
    let mut sums = Vec::new();
    for key in KEYS {
        let cut = admitted(&clients[2], key, "cut", 100).await;
        assert_eq!(cut, 30, "{key}: its share alone");
        let mut others = 0;
        for client in &clients[..2] {
            others += admitted(client, key, "cut", 100).await;
        }
        assert!((ENOUGH..=60).contains(&others), "{key}: {others} admitted of 60");
        sums.push(cut + others);
    }
    world.set_cut_off(2, false);
    world.wait_until_connected();
    for (key, mut sum) in KEYS.into_iter().zip(sums) {
        for client in &clients {
            sum += admitted(client, key, "cut", 30).await;
        }
        assert!(sum <= 90, "{key}: {sum} admitted of 90 after the partition");
        let mut sum = 0;
        for client in &clients {
            sum += admitted(client, key, "healed", 30).await;
        }
        assert!((ENOUGH..=90).contains(&sum), "{key}: {sum} admitted of 90 by all regions");
    }
}

#[tokio::test]
async fn a_region_that_is_dropped_leaves_its_share_to_the_others_until_it_returns() {
    let mut world = World::start(RULES, Network::NEAR, &[], None);
    let clients = world.clients().await;
    world.kill(2);
    for region in [0, 1] {
        world.wait_until_missed(region, 2);
    }
    // No region uses the share of one that may live.
    let mut others = 0;
    for client in &clients[..2] {
        others += admitted(client, "fixed", "killed", 100).await;
    }
    assert!((ENOUGH..=60).contains(&others), "{others} admitted of 60");
    world.change_table(|rows| rows[2].is_lost = true);
    world.wait_until_connected();
    for region in [0, 1] {
        let attempts = Cell::new(0);
        until("the others use its share", async || {
            let mut client = world.tollgate(region).client().await;
            // In one request, which passes as a whole: more than a third, and less than a half. Of a counter of its own, from
            // which no other region borrows.
            let value = format!("{region}-{}", attempts.replace(attempts.get() + 1));
            let request = RateLimitRequest { hits_addend: 40, ..request("web", &[&[("short", &value)]]) };
            client.call(request).await.is_ok_and(|answer| answer.overall_code() == Code::Ok)
        })
        .await;
    }
    world.change_table(|rows| rows[2].is_lost = false);
    world.launch(2);
    world.wait_until_connected();
    // It joins: until hits under the former shares have stopped counting, it has what the others lend.
    let clients = world.clients().await;
    until("it takes part again", async || {
        let answer = clients[2].clone().call(request("web", &[&[("fixed", "returned")]])).await;
        answer.is_ok_and(|answer| answer.overall_code() == Code::Ok)
    })
    .await;
    let mut sum = 1;
    for client in &clients {
        sum += admitted(client, "fixed", "returned", 100).await;
    }
    assert!((1..=90).contains(&sum), "{sum} admitted of 90 after the return");
}
