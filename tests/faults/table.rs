//! All scenarios at full length, one after the other: `tests/faults/run.sh`.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    thread,
};

use super::{
    cluster, connections, memory, network, overload, profile::Profile, random, report::ReportRow, sentinel,
    standalone,
};
use crate::support::tollgate::project;

type Scenario = fn(&Profile) -> ReportRow;

/// Names to choose scenarios by, and these.
const SCENARIOS: [(&str, Scenario); 23] = [
    ("silent", standalone::falls_silent),
    ("killed", standalone::dies_and_comes_back),
    ("flushed", standalone::forgets_the_script),
    ("full", standalone::is_full),
    ("readonly", standalone::takes_no_writes),
    ("paused", standalone::is_paused),
    ("busy", standalone::is_busy),
    ("black", network::is_black),
    ("slow", network::is_slow),
    ("cut", network::cuts_answers),
    ("half", network::is_half_closed),
    ("master", |profile| cluster::master_dies(profile, &mut cluster::start())),
    ("shard", |profile| cluster::shard_is_cut_off(profile, &mut cluster::start())),
    ("takeover", |profile| cluster::replica_takes_over(profile, &mut cluster::start())),
    ("slots", |profile| cluster::slots_move(profile, &mut cluster::start())),
    ("sentinel", sentinel::master_dies),
    ("order", sentinel::is_ordered),
    ("memory", memory::memory_store),
    ("redis", memory::redis_store),
    ("metrics", memory::metrics_of_values),
    ("crowd", connections::others_are_served),
    ("overload", overload::four_times),
    ("random", random::everything),
];

const HEAD: &str = "| fault | required | measured | verdict |\n|---|---|---|---|\n";

/// A short description of the machine.
fn machine() -> String {
    let output = Command::new("redis-server").arg("--version").output().expect("it is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or("?").to_owned();
    let cores = thread::available_parallelism().expect("a number");
    format!("{cores} cores, shared by tollgate, Redis and the callers; Redis {version}")
}

/// The scenarios that `FAULTS_ONLY` lists, separated by commas; all without it.
#[test]
#[ignore = "takes half an hour; run by tests/faults/run.sh"]
fn table() {
    let only = env::var("FAULTS_ONLY").unwrap_or_default();
    let chosen = |name: &str| only.is_empty() || only.split(',').any(|word| word == name);
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for (name, scenario) in SCENARIOS.into_iter().filter(|(name, _)| chosen(name)) {
        println!("== {name}");
        let row = match catch_unwind(AssertUnwindSafe(|| scenario(&Profile::FULL))) {
            Ok(row) => row,
            Err(_) => {
                let mut row = ReportRow::new(name, &Profile::FULL);
                row.must("completes", "panicked", false);
                row
            }
        };
        println!("{row}");
        if !row.is_met() {
            missed.push(name);
        }
        rows.push(format!("{row}\n"));
    }
    if only.is_empty() {
        let introduction = "# Effect of faults on callers\n\nWritten by `tests/faults/run.sh`. 3,000 requests per second, open \
                    loop, `--on-store-error local`, a client deadline of 20 ms and a store timeout of 10 ms unless a \
                    row says otherwise; latencies count from the time that a request was due. Service is normal once \
                    the p99 is at most 5 ms and at most one response in 1,000 is not from Redis. Charges are counted \
                    in Redis at the end, and compared with the responses from Redis, and with those that may be: the \
                    ones by policy, and the late ones.\n";
        let text = format!("{introduction}\n{}.\n\n{HEAD}{}", machine(), rows.concat());
        fs::write(project("tests/faults/RESULTS.md"), text).expect("writable");
    }
    assert!(!rows.is_empty(), "nothing is called {only}");
    assert!(missed.is_empty(), "missed: {missed:?}");
}
