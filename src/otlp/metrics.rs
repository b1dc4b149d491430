//! Metrics of the export of metrics.

use tollgate_metrics::{CounterFamily, Metric};

/// Metrics of the export of metrics.
pub static METRICS: &[&dyn Metric] = &[&EXPORTS];

static EXPORTS: CounterFamily<1> = CounterFamily::new(
    "tollgate_otlp_metric_exports_total",
    &["result"],
    "Exports of all metrics to the OpenTelemetry collector, one for each interval, by result.",
);

/// Result of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExportResult {
    /// The collector accepted every point.
    Success,
    /// The collector accepted the messages without some of their points.
    Partial,
    /// The collector did not accept every message in time.
    Failed,
}

impl ExportResult {
    const ALL: [Self; 3] = [Self::Success, Self::Partial, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

/// Exports the results at zero, so that a first failure is seen as a change.
pub(super) fn export() {
    ExportResult::ALL.into_iter().for_each(|result| EXPORTS.export([result.name()]));
}

/// Counts an export.
pub(super) fn exported(result: ExportResult) {
    EXPORTS.increment([result.name()]);
}
