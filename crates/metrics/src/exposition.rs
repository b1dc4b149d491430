//! Declarations of metrics, and Prometheus' text format.

use std::fmt::{self, Display, Write as _};

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

/// One metric, or a few that are collected together.
pub trait Metric: Sync {
    /// Declarations of the metrics.
    fn declared(&self) -> &[Declared];

    /// Registers the series that are exported before anything was counted.
    fn register(&self) {}

    /// Adds series to a page that the exporter does not keep.
    fn write(&self, _page: &mut Page) {}
}

/// A page in Prometheus' text format.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a metric; all its samples follow.
    pub fn begin(&mut self, declared: &Declared) {
        let Declared { name, kind, help, .. } = declared;
        let kind = kind.name();
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Adds a sample of the metric whose labels have these values.
    pub fn sample(&mut self, declared: &Declared, values: &[&str], value: impl Display) {
        debug_assert!(values.len() <= declared.labels.len(), "{} has other labels", declared.name);
        self.line(declared.name, declared.labels.iter().copied().zip(values.iter().copied()), value);
    }

    /// Begins a metric and adds its only sample.
    pub fn single(&mut self, declared: &Declared, value: impl Display) {
        self.begin(declared);
        self.sample(declared, &[], value);
    }

    pub(super) fn line<'a>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        value: impl Display,
    ) {
        self.0.push_str(name);
        let mut before = '{';
        for (label, value) in labels {
            self.0.push(before);
            self.0.push_str(label);
            self.0.push_str("=\"");
            self.escaped(value);
            self.0.push('"');
            before = ',';
        }
        if before == ',' {
            self.0.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    fn escaped(&mut self, value: &str) {
        for char in value.chars() {
            match char {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                char => self.0.push(char),
            }
        }
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(text);
    }

    /// A page that begins with this text.
    pub(super) const fn after(text: String) -> Self {
        Self(text)
    }

    /// The text of the page.
    pub fn into_text(self) -> String {
        self.0
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
