//! Requests that never repeat: what tollgate remembers of them is bounded.

use tollgate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;

use super::*;

const RULES: &str = "
domain: d
descriptors:
- key: fixed
  rate_limit: {unit: minute, requests_per_unit: 2}
- key: sliding
  rate_limit: {unit: hour, requests_per_unit: 2, algorithm: sliding_window}
- key: bucket
  rate_limit: {unit: minute, requests_per_unit: 2, algorithm: token_bucket}
- key: log
  rate_limit: {unit: minute, requests_per_unit: 2, algorithm: sliding_window_log}
- key: leased
  rate_limit: {unit: minute, requests_per_unit: 2, sync: leased}
";

/// The memory scenario with metrics for every value.
fn detailed() -> String {
    RULES.replace("  rate_limit", "  value_to_metric: true\n  rate_limit")
}

/// A request that is unlike any other: its value, in one of ten its domain, and in one of ten a limit of its own.
fn unseen(random: &mut Rng) -> Bytes {
    let keys = ["fixed", "sliding", "bucket", "log", "leased", "unknown"];
    let value = format!("{:016x}", random.u64(..));
    let domain = match random.u8(..10) {
        0 => format!("domain{:08x}", random.u32(..)),
        _ => "d".to_owned(),
    };
    let mut message = request(&domain, &[&[(keys[random.usize(..keys.len())], &value)]]);
    if random.u8(..10) == 0 {
        let unit = i32::from(random.u8(1..=4));
        message.descriptors[0].limit =
            Some(RateLimitOverride { requests_per_unit: random.u32(1..1_000), unit, ..Default::default() });
    }
    framed(&message)
}

fn resident(tollgate: &Tollgate) -> u64 {
    tollgate.resident() >> 20
}

/// Sends requests in five parts; returns their outcomes, and the megabytes that were resident after each.
fn flood(tollgate: &Tollgate, requests: u64) -> (Tally, Vec<u64>) {
    let part = ClosedLoop {
        connections: 4,
        streams: 64,
        deadline: Duration::from_secs(10),
        requests: requests / 5,
        time: Duration::MAX,
    };
    let (mut sum, mut memory) = (Tally::default(), Vec::new());
    for seed in 0..5 {
        let tally = part.run(tollgate.grpc_port, seed, unseen);
        sum.sent += tally.sent;
        sum.errors += tally.errors;
        sum.took += tally.took;
        memory.push(resident(tollgate));
    }
    (sum, memory)
}

fn page(tollgate: &Tollgate) -> usize {
    tollgate.metrics().len()
}

/// Sends requests, and reports the memory that they leave in use. `most` is the bound, in MB.
fn judge(mut row: ReportRow, store: &[&str], requests: u64, most: u64) -> ReportRow {
    let arguments = [store, &["--log-level", "error", "--on-store-error", "local"]].concat();
    let tollgate = Tollgate::serving(RULES, &arguments);
    let empty = resident(&tollgate);
    let (tally, memory) = flood(&tollgate, requests);
    let unknown = tally.errors as f64 / tally.sent as f64;
    row.must("errors 0", tally.errors, tally.errors == 0);
    let last = memory.last().copied().unwrap_or_default();
    let required = format!("RSS <= {most} MB");
    row.must(&required, format!("{last} MB, {empty} MB before, {memory:?} after each fifth"), last <= most);
    row.timed("the last fifth adds <= 5 %", last.abs_diff(memory[3]), last <= memory[3] + memory[3] / 20);
    row.must("/metrics < 1 MB", format!("{} kB", page(&tollgate) / 1000), page(&tollgate) < 1_000_000);
    row.note(format!("{:.0} requests/s, {unknown:.3} failed", tally.sent as f64 / tally.took.as_secs_f64()));
    row
}

/// In the memory store.
pub(super) fn memory_store(profile: &Profile) -> ReportRow {
    let requests = if profile.is_timed() { 10_000_000 } else { 20_000 };
    let row = ReportRow::new(format!("{requests} requests that never repeat, memory store"), profile);
    judge(row, &["--max-counters", "1000000"], requests, 400)
}

/// In Redis, which may forget.
pub(super) fn redis_store(profile: &Profile) -> ReportRow {
    let requests = if profile.is_timed() { 3_000_000 } else { 10_000 };
    let redis = Redis::start_with(&["--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru"]);
    let row = ReportRow::new(format!("{requests} requests that never repeat, Redis"), profile);
    judge(row, &["--store", &redis.url(), "--store-timeout", "5s"], requests, 200)
}

/// With metrics for every value, which are bounded by their number.
pub(super) fn metrics_of_values(profile: &Profile) -> ReportRow {
    let requests = if profile.is_timed() { 500_000 } else { 10_000 };
    let tollgate = Tollgate::serving(&detailed(), &["--log-level", "error", "--on-store-error", "local"]);
    let (tally, memory) = flood(&tollgate, requests);
    let mut row = ReportRow::new(format!("{requests} requests that never repeat, value_to_metric"), profile);
    row.must("errors 0", tally.errors, tally.errors == 0);
    let size = page(&tollgate);
    row.must("/metrics bounded", format!("{:.1} MB", size as f64 / 1e6), size < 1_000_000);
    row.note(format!("{memory:?} MB after each fifth; {}", millis(tally.took)));
    row
}

#[test]
fn memory_is_bounded_for_requests_that_never_repeat() {
    for scenario in [memory_store, redis_store, metrics_of_values] {
        scenario(&Profile::SHORT).judge();
    }
}
