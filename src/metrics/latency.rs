//! How long calls take, and how many travel together.

use std::{sync::LazyLock, time::Duration};

use super::{
    histogram::{Histogram, Observed, Unit},
    page::Page,
};

/// Bounds of time.
const TIMES: usize = 15;

/// What they are, in nanoseconds: from what a decision takes in this process to what no caller waits for.
const BOUNDS: [u64; TIMES] = [
    25_000,
    50_000,
    100_000,
    200_000,
    300_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
];

/// Calls of a command, which has 16 at the most.
const SIZES: [u64; 5] = [1, 2, 4, 8, 16];

/// Times of calls.
pub(super) type Times = Observed<TIMES>;

static CALLS: LazyLock<Histogram<TIMES>> = LazyLock::new(|| Histogram::new(Unit::Time, BOUNDS));

static STORE: LazyLock<Histogram<TIMES>> = LazyLock::new(|| Histogram::new(Unit::Time, BOUNDS));

static BATCHES: LazyLock<Histogram<5>> = LazyLock::new(|| Histogram::new(Unit::Count, SIZES));

/// Notes how long a gRPC call took in the server, from when its request was there to when its answer was.
pub fn call_took(time: Duration) {
    CALLS.observe(nanoseconds(time));
}

/// Notes how long a decision took that waited for Redis, whatever came of it.
pub fn store_took(time: Duration) {
    STORE.observe(nanoseconds(time));
}

/// Notes how many calls a command to Redis has.
pub(super) fn redis_batch(calls: usize) {
    BATCHES.observe(calls as u64);
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long calls took so far.
pub(super) fn of_calls() -> Times {
    CALLS.observed()
}

/// How long decisions took so far that waited for Redis.
pub(super) fn of_store() -> Times {
    STORE.observed()
}

/// Adds all of them to a page.
pub(super) fn write(page: &mut Page) {
    CALLS.write(
        page,
        "tollgate_request_duration_seconds",
        "How long gRPC calls took in the server, from when the request was there to when the answer was.",
        &[],
    );
    STORE.write(
        page,
        "tollgate_store_duration_seconds",
        "How long decisions took that waited for Redis, whatever came of them.",
        &[],
    );
    BATCHES.write(page, "tollgate_redis_batch_calls", "Calls in one command to Redis.", &[]);
}

/// Adds the times of calls to a page under another name.
pub(super) fn write_calls_as(page: &mut Page, name: &str, help: &str, labels: &[(&str, &str)]) {
    CALLS.write(page, name, help, labels);
}
