//! `sync: auto` on a real server: three instances, keys by Zipf, and counts by the callers.

use crate::support::prelude::*;

/// Keys, of which [`NEAR`] have a limit that they meet.
const KEYS: usize = 300;

/// Keys with a limit, one of a hundred.
const NEAR: [usize; 3] = [1, 4, 20];

/// Part of its requests that a key with a limit may pass, for every hundred.
const ADMITTED_PERCENT: usize = 95;

const REQUESTS: usize = 12_000;
const CALLERS: usize = 24;

/// The sequence of keys in the requests of all callers together: the same in each run.
fn sequence() -> Vec<usize> {
    let weights: Vec<f64> = (1..=KEYS).map(|rank| (rank as f64).powf(-1.1)).collect();
    let total: f64 = weights.iter().sum();
    let mut random = fastrand::Rng::with_seed(7);
    let draw = |random: &mut fastrand::Rng| {
        let mut left = random.f64() * total;
        weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        })
    };
    (0..REQUESTS).map(|_| draw(&mut random).unwrap_or_default()).collect()
}

fn text(key: usize) -> String {
    format!("k{key}")
}

async fn passes(client: &mut Client, key: usize) -> bool {
    client.passes("d", &[("auto", &text(key))]).await
}

/// Sends the requests for a sequence of keys at several callers at once. Returns the number of admitted ones by key.
async fn admit(instances: &[Tollgate], sequence: &[usize]) -> BTreeMap<usize, usize> {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let mut client = instances[caller % instances.len()].client().await;
        let keys: Vec<usize> = sequence.iter().copied().skip(caller).step_by(CALLERS).collect();
        callers.spawn(async move {
            let mut admitted = BTreeMap::<usize, usize>::new();
            for key in keys {
                *admitted.entry(key).or_default() += usize::from(passes(&mut client, key).await);
            }
            admitted
        });
    }
    let mut admitted = BTreeMap::<usize, usize>::new();
    for of_one in callers.join_all().await {
        of_one.into_iter().for_each(|(key, count)| *admitted.entry(key).or_default() += count);
    }
    admitted
}

/// Requests hits of a key, of which some are admitted, up to its limit, and checks that no more pass.
async fn reach_limit(clients: &mut [Client], key: usize, mut admitted: usize, limit: usize) {
    until(&format!("key {key} stays below its limit"), async || {
        for client in &mut *clients {
            admitted += usize::from(passes(client, key).await);
        }
        admitted >= limit
    })
    .await;
    for client in clients {
        assert!(!passes(client, key).await, "key {key} is over its limit");
    }
    assert_eq!(admitted, limit, "key {key}");
}

#[tokio::test]
async fn hot_keys_are_leased_and_every_count_is_exact() {
    let sequence = sequence();
    let mut demand = BTreeMap::<usize, usize>::new();
    sequence.iter().for_each(|key| *demand.entry(*key).or_default() += 1);
    let limit_of = |key: &usize| demand[key] * ADMITTED_PERCENT / 100;
    let mut yaml = "domain: d\ndefaults: {unit: year, sync: auto}\ndescriptors:\n\
                    - {key: auto, rate_limit: {requests_per_unit: 1000000}}\n"
        .to_owned();
    for key in &NEAR {
        let limit = limit_of(key);
        yaml +=
            &format!("- {{key: auto, value: {}, rate_limit: {{requests_per_unit: {limit}}}}}\n", text(*key));
    }
    let (redis, config) = (Redis::start(), rules(&yaml));
    let arguments = ["--store", &redis.url(), "--store-timeout", "20s", "--workers", "1"];
    let instances = [(); 3].map(|()| Tollgate::start(config.path(), &arguments));
    let admitted = admit(&instances, &sequence).await;
    let leased = |instance: &Tollgate| instance.metric("tollgate_redis_calls_total{source=\"lease\"}");
    // On a busy machine few keys get requests often enough to be hot.
    assert!(instances.iter().any(|instance| leased(instance) > Some(0.0)), "none of {REQUESTS} decisions");
    let mut false_denials = 0;
    for (key, requested) in &demand {
        let (limit, admitted) =
            if NEAR.contains(key) { (limit_of(key), admitted[key]) } else { (*requested, admitted[key]) };
        assert!(admitted <= limit, "key {key}: {admitted} of {limit}");
        false_denials += limit - admitted;
    }
    // 0.01 % of the requests, and one hit that was in flight to each instance.
    assert!(false_denials <= REQUESTS / 10_000 + instances.len(), "{false_denials} false denials");
    // Tokens that were held at the end are returned: the limit is reached, and not exceeded.
    let mut clients = Vec::new();
    for instance in &instances {
        clients.push(instance.client().await);
    }
    for key in &NEAR {
        reach_limit(&mut clients, *key, admitted[key], limit_of(key)).await;
    }
    shows_held_hits(&instances[0], &mut clients[0]).await;
    shows_the_utilization(&instances, &redis).await;
}

/// The admin API shows that an instance leases a counter.
async fn shows_held_hits(instance: &Tollgate, client: &mut Client) {
    let counter = async || {
        for _ in 0..50 {
            assert!(passes(client, 0).await);
        }
        instance.api("/usage?domain=d&descriptor=auto%3Dk0")["limits"][0].clone()
    };
    let counter = read_until(counter, |counter| counter["held"].as_u64() > Some(0)).await;
    assert!(counter["used"].as_u64() > counter["held"].as_u64(), "{counter}");
}

/// The utilization of the server appears after two samples.
async fn shows_the_utilization(instances: &[Tollgate], redis: &Redis) {
    let series = format!("tollgate_redis_server_utilization{{server=\"127.0.0.1:{}\"}}", redis.port());
    let part = found("no utilization", async || instances[0].metric(&series)).await;
    assert!((0.0..2.0).contains(&part), "{part}");
}
