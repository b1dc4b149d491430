//! Three regions on three continents under traffic at nine tenths of their limits. The figures are printed.
//!
//! `cargo test --test integration -- --ignored --nocapture three_regions::measurement`

use std::{env, time::Duration};

use futures_util::future::join_all;

use super::{
    NAMES, Network, World,
    traffic::{Bound, Outcome, Pattern, Stream, excess, mean, passed, quantile, send},
};
use crate::support::tollgate::{Client, Tollgate, rules};

const RULES: &str = "
domain: web
descriptors:
- key: fixed_minute
  rate_limit: {unit: minute, requests_per_unit: 3000, scope: global}
- key: fixed_second
  rate_limit: {unit: second, requests_per_unit: 100, scope: global}
- key: sliding_minute
  rate_limit: {algorithm: sliding_window, unit: minute, requests_per_unit: 3000, scope: global}
- key: bucket
  rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 100, scope: global}
- key: regional
  rate_limit: {unit: minute, requests_per_unit: 3000}
";

const STREAMS: [Stream; 5] = [
    Stream { key: "fixed_minute", limit: 3_000.0, bound: Bound::Fixed(60.0), rate: 45.0 },
    Stream { key: "fixed_second", limit: 100.0, bound: Bound::Fixed(1.0), rate: 90.0 },
    Stream { key: "sliding_minute", limit: 3_000.0, bound: Bound::Sliding(60.0), rate: 45.0 },
    Stream { key: "bucket", limit: 100.0, bound: Bound::Bucket { burst: 100.0, rate: 100.0 }, rate: 90.0 },
    Stream { key: "regional", limit: 3_000.0, bound: Bound::None, rate: 45.0 },
];

/// Length of each measurement: three minutes, so that shifting traffic visits each region.
fn duration() -> Duration {
    let seconds = env::var("REGIONS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(180))
}

/// One counter for all.
async fn ideal(yaml: &str) -> (Tollgate, Client) {
    let directory = rules(&yaml.replace(", scope: global", "").replace(", far: wait", ""));
    let tollgate = Tollgate::start(directory.path(), &["--store", "memory"]);
    let client = tollgate.client().await;
    (tollgate, client)
}

/// Prints the figures of a stream; the part of the ideal counter's hits that passed, and the excess.
fn print(name: &str, stream: &Stream, outcome: &Outcome) -> (f64, f64) {
    let [decided, ideal] = [&outcome.decided, &outcome.ideal].map(|all| passed(all));
    let part = decided as f64 / ideal.max(1) as f64;
    let excess = excess(stream, &outcome.decided);
    eprintln!(
        "{name:12} {:15} asked {:6} ideal {ideal:6} admitted {decided:6} = {:6.2} % over {excess:5.1} failed {} p50 {:.2} ms \
         p99 {:.2} ms",
        stream.key,
        outcome.decided.len(),
        part * 100.0,
        outcome.failed,
        quantile(&outcome.decided, 0.5),
        quantile(&outcome.decided, 0.99),
    );
    (part, excess)
}

/// Sends all streams at once, and prints their figures and the messages between the regions.
async fn measure(
    world: &World,
    name: &str,
    region: impl Fn(Duration) -> usize + Copy,
    clients: &[Client],
    duration: Duration,
) -> Vec<(f64, f64)> {
    let (_ideal, ideal) = ideal(RULES).await;
    let asks = world.metric("tollgate_region_asks_total");
    let [fixed, second, sliding, bucket, regional] =
        STREAMS.map(|stream| send(stream, region, clients, &ideal, name, duration));
    let (fixed, second, sliding, bucket, regional) = tokio::join!(fixed, second, sliding, bucket, regional);
    let outcomes = [fixed, second, sliding, bucket, regional];
    let figures =
        STREAMS.iter().zip(&outcomes).map(|(stream, outcome)| print(name, stream, outcome)).collect();
    let global = &outcomes[..STREAMS.len() - 1];
    let decisions: usize = global.iter().map(|outcome| outcome.decided.len()).sum();
    let asks = world.metric("tollgate_region_asks_total") - asks;
    eprintln!("{name:12} {asks} asks, {:.4} a decision", asks / decisions as f64);
    figures
}

fn assert_nothing_over(figures: &[(f64, f64)]) {
    for ((_, excess), stream) in figures.iter().zip(STREAMS) {
        assert!(*excess <= 0.0, "{}: {excess} hits over the limit", stream.key);
    }
}

#[ignore = "a measurement of ten minutes"]
#[tokio::test]
async fn admitted_hits_of_three_regions_against_one_counter() {
    let world = World::start(RULES, Network::FAR, &[], None);
    let clients = world.clients().await;
    for pattern in Pattern::ALL {
        let name = format!("{pattern:?}");
        let figures = measure(&world, &name, |since| pattern.region(since), &clients, duration()).await;
        assert_nothing_over(&figures);
    }
}

/// Small limits, all of whose traffic is in one region.
const SMALL_RULES: &str = "
domain: web
descriptors:
- key: small
  rate_limit: {unit: minute, requests_per_unit: 10, scope: global, far: wait}
";

/// Counters of the small limit.
const SMALL_COUNTERS: usize = 100;

#[ignore = "a measurement of three minutes"]
#[tokio::test]
async fn hits_of_small_limits_that_wait_for_loans() {
    let world = World::start(SMALL_RULES, Network::FAR, &[], None);
    let (clients, (_ideal, ideal)) = (world.clients().await, ideal(SMALL_RULES).await);
    let stream = Stream { key: "small", limit: 10.0, bound: Bound::Fixed(60.0), rate: 0.15 };
    let values: Vec<String> = (0..SMALL_COUNTERS).map(|number| number.to_string()).collect();
    let sent = values.iter().map(|value| send(stream, |_| 0, &clients, &ideal, value, duration()));
    let mut all = Outcome::default();
    for outcome in join_all(sent).await {
        let excess = excess(&stream, &outcome.decided);
        assert!(excess <= 0.0, "{excess} hits over the limit");
        all.decided.extend(outcome.decided);
        all.ideal.extend(outcome.ideal);
        all.failed += outcome.failed;
    }
    print("small", &Stream { bound: Bound::None, ..stream }, &all);
    let [waiting, ideal] = [&all.decided, &all.ideal].map(|decided| mean(decided));
    eprintln!("mean {waiting:.2} ms, of the one counter {ideal:.2} ms");
}

#[ignore = "a measurement of a quarter of an hour"]
#[tokio::test]
async fn a_partition_of_minutes_and_a_region_that_is_lost_and_returns() {
    let mut world = World::start(RULES, Network::FAR, &[], None);
    let clients = world.clients().await;
    let uniform = |_| fastrand::usize(..3);
    let rest = |_| fastrand::usize(..2);
    let (long, short) = (5 * duration() / 3, duration() / 3);
    let phase =
        async |world: &World, name: &str, region: &dyn Fn(Duration) -> usize, clients: &[Client], time| {
            assert_nothing_over(&measure(world, name, region, clients, time).await);
        };
    phase(&world, "before", &uniform, &clients, short).await;
    world.set_cut_off(2, true);
    phase(&world, "cut off", &uniform, &clients, long).await;
    world.set_cut_off(2, false);
    let healed = std::time::Instant::now();
    world.wait_until_connected();
    eprintln!("connected {:?} after the partition", healed.elapsed());
    phase(&world, "healed", &uniform, &clients, short).await;
    world.kill(2);
    phase(&world, "killed", &rest, &clients, short).await;
    world.change_table(|rows| rows[2].is_lost = true);
    world.wait_until_connected();
    phase(&world, "dropped", &rest, &clients, short).await;
    world.change_table(|rows| rows[2].is_lost = false);
    world.launch(2);
    world.wait_until_connected();
    let clients = world.clients().await;
    phase(&world, "joining", &uniform, &clients, long).await;
    phase(&world, "returned", &uniform, &clients, short).await;
    eprintln!("regions: {NAMES:?}");
}
