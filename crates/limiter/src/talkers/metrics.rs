//! Metrics of top talkers.

use tollgate_metrics::{Counter, Gauge, Metric};

/// Metrics of top talkers.
pub static METRICS: &[&dyn Metric] = &[&SAMPLES_DROPPED, &SKETCH_BYTES];

static SAMPLES_DROPPED: Counter =
    Counter::new("tollgate_top_talkers_samples_dropped_total", "Samples of top talkers that were dropped.");

static SKETCH_BYTES: Gauge =
    Gauge::new("tollgate_top_talkers_sketch_bytes", "Memory of the sketches of top talkers, in bytes.");

/// Counts dropped samples.
pub(super) fn samples_dropped(count: u64) {
    SAMPLES_DROPPED.add(count);
}

/// Records the memory of the sketches, in bytes.
pub(super) fn sketch_bytes(bytes: usize) {
    SKETCH_BYTES.set(bytes as f64);
}
