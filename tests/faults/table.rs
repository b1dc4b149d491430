//! All scenarios at full length, one after the other: `tests/faults/run.sh`.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    thread,
};

use super::{cluster, crowd, form::Form, memory, overload, random, row::Row, sentinel, server, way};
use crate::support::tollgate::project;

type Scenario = fn(&Form) -> Row;

/// Names to choose scenarios by, and these.
const SCENARIOS: [(&str, Scenario); 23] = [
    ("silent", server::falls_silent),
    ("killed", server::dies_and_comes_back),
    ("flushed", server::forgets_the_script),
    ("full", server::is_full),
    ("readonly", server::takes_no_writes),
    ("paused", server::is_paused),
    ("busy", server::is_busy),
    ("black", way::is_black),
    ("slow", way::is_slow),
    ("cut", way::cuts_answers),
    ("half", way::is_half_closed),
    ("master", |form| cluster::master_dies(form, &mut cluster::start())),
    ("shard", |form| cluster::shard_is_cut_off(form, &mut cluster::start())),
    ("takeover", |form| cluster::replica_takes_over(form, &mut cluster::start())),
    ("slots", |form| cluster::slots_move(form, &mut cluster::start())),
    ("sentinel", sentinel::master_dies),
    ("order", sentinel::is_ordered),
    ("memory", memory::memory_store),
    ("redis", memory::redis_store),
    ("metrics", memory::metrics_of_values),
    ("crowd", crowd::others_are_served),
    ("overload", overload::four_times),
    ("random", random::everything),
];

const HEAD: &str = "| fault | required | measured | verdict |\n|---|---|---|---|\n";

/// What runs the scenarios, shortly.
fn machine() -> String {
    let output = Command::new("redis-server").arg("--version").output().expect("it is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or("?").to_owned();
    let cores = thread::available_parallelism().expect("a number");
    format!("{cores} cores, which tollgate, Redis and the callers share; Redis {version}")
}

/// Those that `FAULTS_ONLY` names, with commas; all without it.
#[test]
#[ignore = "takes half an hour; run by tests/faults/run.sh"]
fn table() {
    let only = env::var("FAULTS_ONLY").unwrap_or_default();
    let chosen = |name: &str| only.is_empty() || only.split(',').any(|word| word == name);
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for (name, scenario) in SCENARIOS.into_iter().filter(|(name, _)| chosen(name)) {
        println!("== {name}");
        let row = match catch_unwind(AssertUnwindSafe(|| scenario(&Form::FULL))) {
            Ok(row) => row,
            Err(_) => {
                let mut row = Row::new(name, &Form::FULL);
                row.must("it runs to its end", "it does not", false);
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
        let told = "# What callers notice of faults\n\nWritten by `tests/faults/run.sh`. 3,000 requests a second, open \
                    loop, `--on-store-error local`, a client deadline of 20 ms and a store time-out of 10 ms where \
                    nothing else is said; latencies count from when a request was due. Things are normal from when \
                    on the p99 is at most 5 ms and one answer in 1,000 at most is not by Redis. Charges are counted \
                    in Redis at the end, and compared with the answers that were Redis', and those that may be: the \
                    ones by policy, and the late ones.\n";
        let text = format!("{told}\n{}.\n\n{HEAD}{}", machine(), rows.concat());
        fs::write(project("tests/faults/RESULTS.md"), text).expect("writable");
    }
    assert!(!rows.is_empty(), "nothing is called {only}");
    assert!(missed.is_empty(), "missed: {missed:?}");
}
