//! Declarations of metrics.

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts of observations in buckets.
    Histogram,
}

impl MetricKind {
    /// The name that Prometheus uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Declaration of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The name, with its unit.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// Keys of its labels.
    pub labels: &'static [&'static str],
    /// Description for people.
    pub help: &'static str,
}
