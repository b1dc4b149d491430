//! All scenarios at full length, one after the other: `tests/faults/run.sh`. A row has a fault, the requirements and the
//! measurements.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

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
    ("black", standalone::is_black),
    ("slow", standalone::is_slow),
    ("cut", standalone::cuts_answers),
    ("half", standalone::is_half_closed),
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
    let text = output_of(Command::new("redis-server").arg("--version"));
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

#[derive(Clone, Debug)]
struct Check {
    required: String,
    measured: String,
    is_met: bool,
}

/// Findings of one scenario.
#[derive(Clone, Debug)]
pub(super) struct ReportRow {
    fault: String,
    profile: Profile,
    checks: Vec<Check>,
    notes: Vec<String>,
}

impl ReportRow {
    pub(super) fn new(fault: impl Display, profile: &Profile) -> Self {
        Self { fault: fault.to_string(), profile: *profile, checks: Vec::new(), notes: Vec::new() }
    }

    /// A requirement on any machine.
    pub(super) fn must(&mut self, required: &str, measured: impl Display, is_met: bool) {
        self.checks.push(Check { required: required.into(), measured: measured.to_string(), is_met });
    }

    /// A requirement that depends on time, and is not checked on a shared machine.
    pub(super) fn timed(&mut self, required: &str, measured: impl Display, is_met: bool) {
        self.must(required, measured, is_met || !self.profile.is_timed());
    }

    /// An additional measurement.
    pub(super) fn note(&mut self, text: impl Display) {
        self.notes.push(text.to_string());
    }

    /// No request has an error, nor comes too late.
    pub(super) fn no_errors(&mut self, samples: &Samples) {
        let errors = samples.errors();
        let measured =
            format!("{} of {} {}", errors.values().sum::<usize>(), samples.len(), error_counts(&errors));
        self.must("errors 0", measured.trim(), errors.is_empty() && samples.len() > 0);
    }

    /// Some of the calls during a fault were decided by policy.
    pub(super) fn some_by_policy(&mut self, required: &str, during: &Samples) {
        let degraded = during.degraded();
        self.must(required, format!("{degraded} of {}", during.len()), degraded > 0);
    }

    /// Everything is as before the fault, soon after it was healed.
    pub(super) fn normal_within(&mut self, samples: &Samples, times: Times, limit: Duration, since: &str) {
        let before = samples.between(Duration::ZERO, times.fault);
        let normal = samples.normal_after(times.healed, &before, self.profile.normal_p99);
        let measured = normal.map_or("never".to_owned(), |after| format!("after {}", millis(after)));
        let required = format!("normal < {} s after {since}", limit.as_secs());
        self.timed(&required, measured, normal.is_some_and(|after| after < limit));
        if !self.profile.is_timed() {
            return;
        }
        let odd = before.count(|sample| !sample.is_normal());
        self.note(format!("before: p99 {}, {odd} of {} not by Redis", millis(before.p99()), before.len()));
    }

    pub(super) fn is_met(&self) -> bool {
        self.checks.iter().all(|check| check.is_met)
    }

    /// Fails the test if it is not met.
    pub(super) fn judge(&self) {
        println!("{self}");
        assert!(self.is_met(), "{self}");
    }
}

fn error_counts(errors: &BTreeMap<String, usize>) -> String {
    if errors.is_empty() { String::new() } else { format!("{errors:?}") }
}

/// As a row of a table in Markdown.
impl Display for ReportRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |part: fn(&Check) -> &str| self.checks.iter().map(part).collect::<Vec<_>>().join("; ");
        let missed = self.checks.iter().filter(|check| !check.is_met).map(|check| &*check.required);
        let missed: Vec<_> = missed.collect();
        let verdict =
            if missed.is_empty() { "met".to_owned() } else { format!("**missed**: {}", missed.join("; ")) };
        let mut measured = joined(|check| &check.measured);
        if !self.notes.is_empty() {
            measured = format!("{measured} ({})", self.notes.join("; "));
        }
        write!(f, "| {} | {} | {measured} | {verdict} |", self.fault, joined(|check| &check.required))
    }
}
