//! Metrics of stores.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tollgate_metrics::{Counter, Gauge, Histogram, Metric, StripedFamily, Unit};

/// Metrics of stores of every kind.
pub static METRICS: &[&dyn Metric] = &[&DURATION, &REFUNDS, &MEMORY_COUNTERS, &MEMORY_EVICTIONS];

/// Number of buckets of latencies.
pub const TIME_BUCKETS: usize = 15;

/// Upper bounds of the buckets of latencies, in nanoseconds: from decisions within the process to more than any
/// client's deadline.
pub const TIME_BOUNDS: [u64; TIME_BUCKETS] = [
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

/// Latencies of decisions that waited for Redis.
pub static DURATION: Histogram<TIME_BUCKETS> = Histogram::new(
    "tollgate_store_duration_seconds",
    "Time in seconds of decisions that waited for Redis, whatever their result.",
    Unit::Time,
    TIME_BOUNDS,
);

static REFUNDS: StripedFamily<2, 1> = StripedFamily::with_series(
    "tollgate_refunds_total",
    &["result"],
    "Calls that refund charged hits.",
    || [["success"], ["error"]],
)
.at_zero();

static MEMORY_COUNTERS: Gauge = Gauge::new("tollgate_memory_counters", "Counters in the memory store.");

static MEMORY_EVICTIONS: Counter = Counter::new(
    "tollgate_memory_evictions_total",
    "Live counters evicted from the memory store to make room.",
);

/// Counts a request that refunds hits of a call which was denied or whose client disconnected.
pub(super) fn refund(succeeded: bool) {
    REFUNDS.increment(usize::from(!succeeded));
}

/// Records the occupancy of the memory store: its counters, and those evicted since the start.
pub fn memory_store(counters: usize, evicted: u64) {
    MEMORY_COUNTERS.set(counters as f64);
    MEMORY_EVICTIONS.raise_to(evicted);
}

/// Weak references to values, each until its owner drops it.
pub(crate) struct LiveList<T>(Mutex<Vec<Weak<T>>>);

impl<T> LiveList<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Includes a value until it is dropped.
    pub(crate) fn add(&self, value: Weak<T>) {
        let mut all = self.0.lock();
        all.retain(|value| value.strong_count() > 0);
        all.push(value);
    }

    /// The values that were not dropped.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
