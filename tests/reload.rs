//! Reloads of a large configuration while requests flow.

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use crate::support::prelude::*;

const DOMAINS: usize = 50;
const RULES_PER_DOMAIN: usize = 20;

/// Writes a thousand rules whose limits show their version.
fn write(directory: &Path, version: u32) {
    for domain in 0..DOMAINS {
        let mut yaml = format!("domain: domain-{domain}\ndescriptors:\n");
        for rule in 0..RULES_PER_DOMAIN {
            yaml +=
                &format!("- key: key-{rule}\n  rate_limit: {{unit: year, requests_per_unit: {version}}}\n");
        }
        fs::write(directory.join(format!("{domain:02}.yaml")), yaml).expect("writable");
    }
}

/// The version of the rules that decides a request to the last of the domains.
async fn version(client: &mut Client) -> u32 {
    let domain = format!("domain-{}", DOMAINS - 1);
    let answer = client.call(request(&domain, &[&[("key-19", "x")]])).await.expect("an answer");
    answer.statuses[0].current_limit.as_ref().expect("a limit").requests_per_unit
}

/// Sends requests at a steady rate until stopped; returns the latency of each.
fn flow(client: Client, per_millisecond: u64, stop: Arc<AtomicBool>) -> JoinHandle<Vec<Duration>> {
    tokio::spawn(async move {
        let (mut calls, mut tick, mut sent) = (JoinSet::new(), interval(Duration::from_millis(1)), 0_u64);
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while !stop.load(Ordering::Relaxed) {
            tick.tick().await;
            for _ in 0..per_millisecond {
                sent += 1;
                let (mut client, domain) = (client.clone(), format!("domain-{}", sent % DOMAINS as u64));
                calls.spawn(async move {
                    let begun = Instant::now();
                    let value = (sent % 1_000).to_string();
                    client.call(request(&domain, &[&[("key-3", &value)]])).await.expect("an answer");
                    begun.elapsed()
                });
            }
        }
        calls.join_all().await
    })
}

/// Replaces the rules several times under a flow of requests; gives the longest time until a version was in
/// force, and how long the requests took, in order of length.
async fn replace_under_flow(per_millisecond: u64, versions: u32) -> (Duration, Vec<Duration>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write(directory.path(), 1_000_000);
    let tollgate = Tollgate::start(directory.path(), &["--log-level", "warn"]);
    let mut client = tollgate.client().await;
    let stop = Arc::new(AtomicBool::new(false));
    let flow = flow(tollgate.client().await, per_millisecond, Arc::clone(&stop));
    let mut slowest = Duration::ZERO;
    for number in 1..=versions {
        sleep(Duration::from_millis(300)).await;
        let expected = 1_000_000 + number;
        // On a thread of its own: this one carries the requests.
        let path = directory.path().to_owned();
        spawn_blocking(move || write(&path, expected)).await.expect("written");
        let is_active = async || version(&mut client).await == expected;
        slowest = slowest.max(until(&format!("version {number} does not take effect"), is_active).await);
    }
    stop.store(true, Ordering::Relaxed);
    let mut latencies = flow.await.expect("every request was answered");
    latencies.sort_unstable();
    (slowest, latencies)
}

#[tokio::test]
async fn a_thousand_rules_are_replaced_without_an_error_while_requests_flow() {
    let (_, latencies) = replace_under_flow(1, 3).await;
    assert!(latencies.len() > 500);
}

/// A hundred rules of one domain, in one file.
fn hundred_rules(limit: u32) -> String {
    let rule =
        |rule| format!("- key: key-{rule}\n  rate_limit:\n    unit: year\n    requests_per_unit: {limit}\n");
    format!("domain: domain-0\ndescriptors:\n{}", (0..100).map(rule).collect::<String>())
}

/// Waits until a line of `/metrics` begins with `line`; all rules must be active at every look before.
async fn wait_for(tollgate: &Tollgate, line: &str) {
    until(&format!("no {line}"), async || {
        let page = tollgate.metrics();
        let is_there = page.lines().any(|found| found.starts_with(line));
        assert!(is_there || page.contains("\ntollgate_rules 100\n"), "rules are missing");
        is_there
    })
    .await;
}

/// The limit of the last of a hundred rules.
async fn last_limit(client: &mut Client) -> u32 {
    let answer = client.call(request("domain-0", &[&[("key-99", "x")]])).await.expect("an answer");
    answer.statuses[0].current_limit.as_ref().expect("a limit").requests_per_unit
}

#[tokio::test]
async fn a_file_that_is_open_for_writing_is_reported_and_not_read_before_it_is_closed() {
    let config = rules(&hundred_rules(1_000));
    let tollgate = Tollgate::start(config.path(), &[]);
    let mut client = tollgate.client().await;
    // The watcher has seen a change, so it will see the next one from its first byte.
    fs::write(config.path().join(".new"), hundred_rules(2_000)).expect("written");
    fs::rename(config.path().join(".new"), config.path().join("rules.yaml")).expect("renamed");
    wait_for(&tollgate, "tollgate_config_loads_total{result=\"success\"} 2").await;
    let text = hundred_rules(20_000);
    // The last limit would be read as 20.
    let (first, last) = text.split_at(text.len() - 4);
    let mut file = fs::File::create(config.path().join("rules.yaml")).expect("writable");
    file.write_all(first.as_bytes()).expect("written");
    wait_for(&tollgate, "tollgate_config_loads_total{result=\"unfinished\"} 1").await;
    assert_eq!(last_limit(&mut client).await, 2_000);
    file.write_all(last.as_bytes()).expect("written");
    drop(file);
    wait_for(&tollgate, "tollgate_config_loads_total{result=\"success\"} 3").await;
    assert_eq!(last_limit(&mut client).await, 20_000);
}

#[tokio::test]
async fn an_emptied_directory_keeps_its_rules_active_until_a_file_permits_it() {
    let config = rules(&hundred_rules(1_000));
    let tollgate = Tollgate::start(config.path(), &[]);
    let mut client = tollgate.client().await;
    fs::remove_file(config.path().join("rules.yaml")).expect("removed");
    wait_for(&tollgate, "tollgate_config_loads_total{result=\"refused\"} 1").await;
    assert_eq!(last_limit(&mut client).await, 1_000);
    assert!(page_has(&tollgate, "tollgate_config_last_load_successful 0"));
    fs::write(config.path().join(".allow-empty"), "").expect("written");
    wait_for(&tollgate, "tollgate_rules 0").await;
    assert!(page_has(&tollgate, "tollgate_config_last_load_successful 1"));
}

fn page_has(tollgate: &Tollgate, line: &str) -> bool {
    tollgate.metrics().lines().any(|found| found == line)
}
