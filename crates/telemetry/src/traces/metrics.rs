//! Metrics of traces.

use tollgate_metrics::{Metric, StripedFamily};

/// Metrics of traces.
pub static METRICS: &[&dyn Metric] = &[&SPANS];

/// Spans that were delivered, and those that were dropped.
pub(super) static SPANS: StripedFamily<2, 1> = StripedFamily::with_series(
    "tollgate_trace_spans_total",
    &["result"],
    "Trace spans delivered to the collector, or dropped.",
    || [["success"], ["dropped"]],
)
.at_zero();
