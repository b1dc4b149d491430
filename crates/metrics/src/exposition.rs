//! Declarations of metrics, metrics that write themselves, and the page with all of them in Prometheus' text format.

use std::fmt::{self, Display, Write as _};

/// One metric, or a few that are collected together.
pub trait Metric: fmt::Debug + Sync {
    /// Declarations of the metrics.
    fn declared(&self) -> &[Declared];

    /// Registers the series that are exported before anything was counted.
    fn register(&self) {}

    /// Adds the series to a page, unless they are recorded by the exporter of Prometheus' format.
    fn write(&self, _page: &mut Page) {}
}

/// Values of metrics at one moment, in Prometheus' text format.
#[derive(Debug, Default)]
pub struct Page(pub(super) String);

impl Page {
    /// Begins a metric; all its samples follow.
    pub fn begin(&mut self, declared: &Declared) {
        let Declared { name, kind, help, .. } = declared;
        let kind = kind.name();
        write(&mut self.0, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Adds a sample of the metric whose labels have these values.
    pub fn sample(&mut self, declared: &Declared, values: &[&str], value: impl Display) {
        debug_assert!(values.len() <= declared.labels.len(), "{} has other labels", declared.name);
        line(&mut self.0, declared.name, labels(declared, values), value);
    }

    /// Begins a metric and adds its only sample.
    pub fn single(&mut self, declared: &Declared, value: impl Display) {
        self.begin(declared);
        self.sample(declared, &[], value);
    }

    /// Adds the observations of a histogram whose labels have these values: cumulative buckets, sum and count. Each bucket
    /// has its upper bound and the number of its own observations, in ascending order.
    pub(super) fn distribution(
        &mut self,
        declared: &Declared,
        values: &[&str],
        buckets: &[(String, u64)],
        sum: &str,
    ) {
        let (name, labels) = (declared.name, labels(declared, values));
        let bucket = format!("{name}_bucket");
        let mut so_far = 0_u64;
        for (bound, count) in buckets {
            so_far = so_far.saturating_add(*count);
            line(&mut self.0, &bucket, labels.clone().chain([("le", &**bound)]), so_far);
        }
        line(&mut self.0, &format!("{name}_sum"), labels.clone(), sum);
        line(&mut self.0, &format!("{name}_count"), labels, so_far);
    }

    /// The text of the page.
    pub fn into_text(self) -> String {
        self.0
    }
}

fn labels<'a>(
    declared: &Declared,
    values: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str)> + Clone {
    declared.labels.iter().copied().zip(values.iter().copied())
}

fn line<'a>(
    text: &mut String,
    name: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    value: impl Display,
) {
    text.push_str(name);
    let mut before = '{';
    for (label, value) in labels {
        text.push(before);
        text.push_str(label);
        text.push_str("=\"");
        escape(text, value);
        text.push('"');
        before = ',';
    }
    if before == ',' {
        text.push('}');
    }
    write(text, format_args!(" {value}\n"));
}

fn escape(text: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            char => text.push(char),
        }
    }
}

fn write(text: &mut String, added: fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = text.write_fmt(added);
}

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
    /// Declaration of a counter.
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: MetricKind::Counter, labels, help }
    }

    /// Declaration of a gauge.
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, labels, help }
    }
}

/// Metrics that one function adds to the page.
#[derive(Debug)]
pub struct Computed<const N: usize> {
    declared: [Declared; N],
    write: fn(&[Declared; N], &mut Page),
}

impl<const N: usize> Computed<N> {
    /// Metrics that are collected together.
    pub const fn group(declared: [Declared; N], write: fn(&[Declared; N], &mut Page)) -> Self {
        Self { declared, write }
    }
}

impl Computed<1> {
    /// A gauge with labels; `write` begins it, unless it has no series.
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        write: fn(&[Declared; 1], &mut Page),
    ) -> Self {
        Self::group([Declared::gauge(name, labels, help)], write)
    }

    /// A counter with labels; `write` begins it, unless it has no series.
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        write: fn(&[Declared; 1], &mut Page),
    ) -> Self {
        Self::group([Declared::counter(name, labels, help)], write)
    }
}

impl<const N: usize> Metric for Computed<N> {
    fn declared(&self) -> &[Declared] {
        &self.declared
    }

    fn write(&self, page: &mut Page) {
        (self.write)(&self.declared, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped_and_a_metric_begins_with_its_help_and_type() {
        let (name, labels) = ("calls_total", &["a", "b"]);
        let declared = Declared { name, kind: MetricKind::Counter, labels, help: "Calls." };
        let mut page = Page::default();
        page.single(&declared, 2);
        page.sample(&declared, &["x\"\\\n", "é{}"], 3);
        let expected = "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total 2\n\
                        calls_total{a=\"x\\\"\\\\\\n\",b=\"é{}\"} 3\n";
        assert_eq!(page.into_text(), expected);
    }
}
