//! Prometheus' text format, for what the exporter does not hold.

use std::fmt::{Display, Write as _};

/// What a metric's values do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// They only grow.
    Counter,
    /// They come and go.
    Gauge,
    /// They are counts of observations in buckets.
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A page that grows.
#[derive(Debug)]
pub(super) struct Page(String);

impl Page {
    /// What comes after `text`.
    pub(super) const fn after(text: String) -> Self {
        Self(text)
    }

    /// Begins a metric; all its samples follow.
    pub(super) fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = kind.name();
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Adds a sample.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
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

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(text);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped_and_a_metric_begins_with_what_it_is() {
        let mut page = Page::after("before 1\n".to_owned());
        page.begin("calls_total", Kind::Counter, "Calls.");
        page.sample("calls_total", &[], 2);
        page.sample("calls_total", &[("a", "x\"\\\n"), ("b", "é{}")], 3);
        let expected = "before 1\n# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total 2\n\
                        calls_total{a=\"x\\\"\\\\\\n\",b=\"é{}\"} 3\n";
        assert_eq!(page.into_text(), expected);
    }
}
