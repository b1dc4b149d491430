//! Over-admission, counted by the clients: three instances on a 3+3 cluster, every algorithm at once.

use std::sync::atomic::AtomicI64;

use tokio::time::Instant;
use tollgate::clock::Clock;

use crate::support::prelude::*;

const RULES: &str = "
domain: d
descriptors:
- {key: fixed, rate_limit: {window: 3s, requests_per_unit: 300}}
- {key: sliding, rate_limit: {algorithm: sliding_window, window: 3s, requests_per_unit: 300}}
- {key: log, rate_limit: {algorithm: sliding_window_log, window: 3s, requests_per_unit: 300}}
- {key: bucket, rate_limit: {algorithm: token_bucket, window: 3s, requests_per_unit: 300, burst: 50}}
- {key: leased_fixed, rate_limit: {sync: leased, window: 3s, requests_per_unit: 300}}
- {key: leased_sliding, rate_limit: {sync: leased, algorithm: sliding_window, window: 3s, requests_per_unit: 300}}
- {key: leased_bucket, rate_limit: {sync: leased, algorithm: token_bucket, window: 3s, requests_per_unit: 300, burst: 50}}
- {key: leased_total, rate_limit: {sync: leased, unit: year, requests_per_unit: 1000}}
- {key: auto_sliding, rate_limit: {sync: auto, algorithm: sliding_window, window: 3s, requests_per_unit: 300}}
- {key: auto_bucket, rate_limit: {sync: auto, algorithm: token_bucket, window: 3s, requests_per_unit: 300, burst: 50}}
- {key: auto_total, rate_limit: {sync: auto, unit: year, requests_per_unit: 1000}}
- {key: places, rate_limit: {algorithm: concurrency, requests_per_unit: 5}}
- {key: total, rate_limit: {unit: year, requests_per_unit: 1000}}
";

const WINDOW: u64 = 3_000_000;
const LIMIT: u64 = 300;
const BURST: u64 = 50;
const PERMITS: i64 = 5;
const TOTAL: usize = 1_000;

/// Counters of each algorithm, so that every shard has some.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// When a request that passed was sent and answered, in microseconds since the epoch. It was decided in between.
type Passed = (u64, u64);

fn now() -> u64 {
    Clock::System.now().as_micros()
}

/// Sends requests for one hit until `end`, and to a limit of a year until it is reached; returns the times of those that passed.
async fn hammer(mut client: Client, key: &str, name: &str, end: Instant) -> Vec<Passed> {
    let request = request("d", &[&[(key, name)]]);
    let (mut passed, mut is_waiting) = (Vec::new(), key.ends_with("total"));
    while is_waiting || Instant::now() < end {
        let sent = now();
        let answer = client.call(request.clone()).await.expect("an answer");
        if answer.overall_code() == Code::Ok {
            passed.push((sent, now()));
        } else {
            is_waiting = false;
        }
    }
    passed
}

/// Takes a permit, holds it for a moment, releases it; returns the maximum number held at once, as counted by the
/// holders, and how often one was taken.
async fn hold(mut client: Client, name: &str, held: &AtomicI64, end: Instant) -> (i64, usize) {
    let (mut most, mut taken) = (0, 0);
    while Instant::now() < end {
        let answer = client.call(request("d", &[&[("places", name)]])).await.expect("an answer");
        if answer.overall_code() == Code::OverLimit {
            sleep(Duration::from_millis(1)).await;
            continue;
        }
        most = most.max(held.fetch_add(1, Ordering::SeqCst) + 1);
        taken += 1;
        sleep(Duration::from_millis(taken as u64 % 5)).await;
        held.fetch_sub(1, Ordering::SeqCst);
        let lease = lease_of(&answer).expect("a lease");
        client.call(request("d", &[&[("places", name), ("lease", &lease)]])).await.expect("an answer");
    }
    (most, taken)
}

/// Checks that no stretch of `length` microseconds has more requests than `most` that surely were decided in it.
fn assert_within(passed: &[Passed], length: u64, most: u64, what: &str) {
    for (first, (start, _)) in passed.iter().enumerate() {
        let nearby = passed[first..].iter().take_while(|(sent, _)| sent - start < length);
        let within = nearby.filter(|(_, answered)| answered - start < length).count() as u64;
        assert!(within <= most, "{what}: {within} in {length} µs from {start}");
    }
}

/// Checks that no window between two edges has more requests that surely were decided in it.
fn assert_aligned(passed: &[Passed], what: &str) {
    let mut windows = std::collections::HashMap::<u64, u64>::new();
    for (sent, answered) in passed {
        if sent / WINDOW == answered / WINDOW {
            *windows.entry(sent / WINDOW).or_default() += 1;
        }
    }
    assert!(windows.values().all(|count| *count <= LIMIT), "{what}: {windows:?}");
}

/// The admitted hits of a limit that is reached in a minute, and not in seconds if the machine is busy.
const fn least_of(expected: usize, seconds: u64) -> usize {
    if seconds < 60 { expected / 10 } else { expected }
}

fn check(key: &str, name: &str, mut passed: Vec<Passed>, seconds: u64) {
    passed.sort_unstable();
    let what = format!("{key} {name}");
    match key {
        "fixed" | "leased_fixed" => assert_aligned(&passed, &what),
        "sliding" | "leased_sliding" | "auto_sliding" => {
            assert_aligned(&passed, &what);
            assert_within(&passed, WINDOW, 2 * LIMIT, &what);
        }
        "log" => assert_within(&passed, WINDOW, LIMIT, &what),
        "bucket" | "leased_bucket" | "auto_bucket" => {
            for parts in [1, 10, 30] {
                assert_within(&passed, WINDOW / parts, BURST + LIMIT / parts, &what);
            }
        }
        // Denied hits count in a fixed window, so that a token which is refunded after them comes too late.
        "leased_total" | "auto_total" => {
            let least = least_of(TOTAL - 10, seconds);
            return assert!((least..=TOTAL).contains(&passed.len()), "{what}: {}", passed.len());
        }
        _ => {
            let least = least_of(TOTAL, seconds);
            return assert!((least..=TOTAL).contains(&passed.len()), "{what}: {}", passed.len());
        }
    }
    // The limit was there to be met. A bucket without callers fills only up to its burst.
    let least = least_of((LIMIT * (seconds / 6).max(1)) as usize, seconds);
    assert!(passed.len() >= least, "{what}: only {} passed", passed.len());
}

/// Sends requests of `clients` callers to three instances on a 3+3 cluster for `seconds`, and counts.
async fn run(clients: usize, seconds: u64) {
    let cluster = Cluster::start(3, 3, &[], "");
    let rules = rules(RULES);
    let arguments = ["--store", &cluster.url(), "--store-timeout", "20s", "--workers", "1"];
    let instances: Vec<_> = (0..3).map(|_| Tollgate::start(rules.path(), &arguments)).collect();
    let held: Arc<AtomicI64> = Arc::default();
    let end = Instant::now() + Duration::from_secs(seconds);
    let keys = [
        "fixed",
        "sliding",
        "log",
        "bucket",
        "total",
        "places",
        "leased_fixed",
        "leased_sliding",
        "leased_bucket",
        "leased_total",
        "auto_sliding",
        "auto_bucket",
        "auto_total",
    ];
    let (mut callers, mut holders) = (JoinSet::new(), JoinSet::new());
    for number in 0..clients {
        let client = instances[number % 3].client().await;
        let (key, at) = (keys[number % keys.len()], number / keys.len() % NAMES.len());
        let held = Arc::clone(&held);
        match key {
            "places" => drop(holders.spawn(async move { hold(client, NAMES[0], &held, end).await })),
            key => drop(callers.spawn(async move { (key, at, hammer(client, key, NAMES[at], end).await) })),
        }
    }
    let (mut by_counter, mut passed) = (BTreeMap::<_, Vec<Passed>>::new(), 0);
    for (key, at, of_one) in callers.join_all().await {
        passed += of_one.len();
        by_counter.entry((key, at)).or_default().extend(of_one);
    }
    for ((key, at), passed) in by_counter {
        check(key, NAMES[at], passed, seconds);
    }
    let (mut most, mut taken) = (0, 0);
    for (most_of_one, taken_by_one) in holders.join_all().await {
        most = most.max(most_of_one);
        taken += taken_by_one;
    }
    // On a busy machine, a short run has few holders at once.
    let least = least_of(PERMITS as usize, seconds).max(1) as i64;
    assert!((least..=PERMITS).contains(&most), "{most} places held at once");
    println!(
        "{clients} clients, {seconds} s: {passed} passed, {taken} places taken, at most {most} at once; none over a limit"
    );
}

#[tokio::test]
async fn no_algorithm_admits_more_than_its_limit_on_a_cluster() {
    run(80, 6).await;
}

/// `cargo test --release --test integration -- --ignored --nocapture exactness::`
#[tokio::test]
#[ignore = "takes a minute"]
async fn no_algorithm_admits_more_than_its_limit_to_two_hundred_clients_in_a_minute() {
    run(200, 60).await;
}
