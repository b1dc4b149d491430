//! Local cache of counters: stale entries must not persist.

use crate::support::{prelude::*, timing::mostly_keep_to};

const RULES: &str = "
domain: d
descriptors:
- {key: fixed, rate_limit: {unit: year, requests_per_unit: 20}}
- {key: sliding, rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 20}}
- {key: log, rate_limit: {algorithm: sliding_window_log, unit: year, requests_per_unit: 20}}
- {key: bucket, rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 20}}
- {key: leased, rate_limit: {sync: leased, unit: year, requests_per_unit: 20}}
- {key: leased_sliding, rate_limit: {sync: leased, algorithm: sliding_window, unit: year, requests_per_unit: 20}}
- {key: leased_bucket, rate_limit: {sync: leased, algorithm: token_bucket, unit: year, requests_per_unit: 20}}
";

const KEYS: [&str; 7] = ["fixed", "sliding", "log", "bucket", "leased", "leased_sliding", "leased_bucket"];

/// A request that refunds this many hits.
fn refund(key: &str, hits: u64) -> RateLimitRequest {
    let mut request = request("d", &[&[(key, "")]]);
    let descriptor = &mut request.descriptors[0];
    (descriptor.is_negative_hits, descriptor.hits_addend) = (true, Some(hits));
    request
}

/// The time until a repeated request passes.
async fn until_passes(client: &mut Client, key: &str) -> Duration {
    until(&format!("{key} stays denied"), async || client.passes("d", &[(key, "")]).await).await
}

#[tokio::test]
async fn a_refund_and_a_reset_are_seen_by_every_instance_within_a_second() {
    let (redis, config) = (Redis::start(), rules(RULES));
    let arguments = ["--store", &redis.url(), "--store-timeout", "5s", "--workers", "1"];
    let instances = [(); 3].map(|()| Tollgate::start(config.path(), &arguments));
    for key in KEYS {
        let (mut clients, mut times) = (Vec::new(), Vec::new());
        for instance in &instances {
            clients.push(instance.client().await);
        }
        // Every instance has cached the denial.
        for client in &mut clients {
            while client.passes("d", &[(key, "")]).await {}
        }
        for hits in [u64::MAX, 60] {
            for giver in 0..clients.len() {
                clients[giver].call(refund(key, hits)).await.expect("an answer");
                for client in &mut clients {
                    times.push(until_passes(client, key).await);
                }
                for client in &mut clients {
                    while client.passes("d", &[(key, "")]).await {}
                }
            }
        }
        mostly_keep_to(Duration::from_secs(1), key, &times);
    }
    let metrics = instances[0].metrics();
    let denied =
        metrics.lines().find(|line| line.starts_with("tollgate_redis_calls_total{source=\"denial_cache\"}"));
    let count: u64 = denied.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a count");
    assert!(count > 0, "there was nothing to be seen late");
}

/// A refund in the opposite order would lose usage.
#[tokio::test]
async fn a_refund_of_another_windows_charge_leaves_the_counter_alone() {
    let redis = Redis::start();
    for subject in [Subject::memory(), Subject::redis(redis.store())] {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let (minute, hour) = (policy(algorithm, 10, 60), policy(algorithm, 10, 3_600));
            let decide = async |micros, policy, hits| {
                subject.decide_one(at(micros), algorithm.name(), policy, hits).await
            };
            assert!(decide(0, hour, Hits::charge(10)).await.admitted);
            // More than the one that is denied, which counts in a fixed window.
            let undo = Hits::RefundCharge { amount: NonZeroU64::MIN.saturating_add(2), made_at: at(0) };
            decide(1_000_000, minute, undo).await;
            assert!(!decide(180_000_000, hour, Hits::ONE).await.admitted, "{algorithm:?}: it was forgotten");
            decide(181_000_000, hour, undo).await;
            assert!(decide(182_000_000, hour, Hits::ONE).await.admitted, "{algorithm:?}: of the same window");
        }
    }
}
