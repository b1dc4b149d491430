//! Metrics of traces.

use tollgate_metrics::{Metric, StripedFamily};

/// Metrics of traces.
pub static METRICS: &[&dyn Metric] = &[&SPANS];

static SPANS: StripedFamily<2, 1> = StripedFamily::with_series(
    "tollgate_trace_spans_total",
    &["result"],
    "Trace spans delivered to the collector, or dropped.",
    || [["success"], ["dropped"]],
)
.at_zero();

/// Counts spans that the collector accepted.
pub(super) fn spans_delivered(count: u64) {
    SPANS.add([count, 0]);
}

/// Counts spans that are lost.
pub(super) fn spans_dropped(count: u64) {
    SPANS.add([0, count]);
}
