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

impl Declared {
    /// Unit of the values, in the notation of UCUM, as the name has it.
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        [("_seconds", "s"), ("_bytes", "By"), ("_ratio", "1")]
            .into_iter()
            .find_map(|(suffix, unit)| name.ends_with(suffix).then_some(unit))
    }
}
