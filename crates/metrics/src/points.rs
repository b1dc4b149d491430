//! Values of metrics as numbers, for formats other than Prometheus' text.

use super::declared::{Declared, MetricKind};

/// A metric with its series at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoints {
    /// Name, type, labels and description.
    pub declared: Declared,
    /// One for each series.
    pub points: Vec<Point>,
}

/// One series at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Values of the declared labels, in their order; the last labels may be left out.
    pub labels: Vec<Box<str>>,
    /// The value.
    pub value: PointValue,
}

/// Value of a series, which the page of Prometheus has in the same moment.
#[derive(Clone, Debug, PartialEq)]
pub enum PointValue {
    /// A count.
    Integer(u64),
    /// Any other number.
    Float(f64),
    /// Observations of a histogram.
    Distribution {
        /// Upper bounds of the buckets but the last, in ascending order.
        bounds: Vec<f64>,
        /// Observations of each bucket, of which there is one more.
        buckets: Vec<u64>,
        /// Sum of the observations.
        sum: f64,
    },
}

impl MetricPoints {
    pub(super) const fn of(declared: Declared) -> Self {
        Self { declared, points: Vec::new() }
    }

    pub(super) fn push(&mut self, values: &[&str], value: PointValue) {
        self.points.push(Point { labels: values.iter().map(|value| Box::from(*value)).collect(), value });
    }
}

impl PointValue {
    /// The number that the text format has. The points of a metric are all of one type: integers for counters, except
    /// those of seconds.
    pub(super) fn number(declared: &Declared, text: &str) -> Option<Self> {
        let is_count = declared.kind == MetricKind::Counter && declared.unit() != Some("s");
        match text.parse::<u64>() {
            Ok(count) if is_count => Some(Self::Integer(count)),
            Ok(_) | Err(_) => text.parse().ok().map(Self::Float),
        }
    }

    /// The observations that the text format has.
    pub(super) fn distribution(bounds: &[String], buckets: &[u64], sum: &str) -> Option<Self> {
        let bounds: Result<Vec<f64>, _> = bounds.iter().map(|bound| bound.parse()).collect();
        Some(Self::Distribution { bounds: bounds.ok()?, buckets: buckets.to_vec(), sum: sum.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Exporter, Gauge, Histogram, Metric, Unit};

    #[test]
    fn points_have_the_values_of_the_page() {
        static CALLS: Counter = Counter::new("points_calls_total", "Calls.");
        static SECONDS: Counter = Counter::new("points_seconds_total", "Time.");
        static SIZE: Gauge = Gauge::new("points_bytes", "Size.");
        static TOOK: Histogram<2> =
            Histogram::new("points_took_seconds", "Time.", Unit::Time, [50_000, 1_000_000_000]);
        let exporter = Exporter::new([&CALLS as &dyn Metric, &SECONDS, &SIZE, &TOOK]);
        let found = || {
            let mut found = Vec::new();
            exporter.read(|metric| found.push((metric.declared.unit(), metric.points)));
            found
        };
        assert_eq!(found().len(), 1, "only a histogram is exported before it is used");
        CALLS.add(u64::MAX);
        SECONDS.add(7);
        SIZE.set(2.0);
        [1_000, 60_000, 3_000_000_000].into_iter().for_each(|value| TOOK.observe(value));
        let point = |value| vec![Point { labels: Vec::new(), value }];
        let took =
            PointValue::Distribution { bounds: vec![0.00005, 1.0], buckets: vec![1, 1, 1], sum: 3.000061 };
        let expected = vec![
            (None, point(PointValue::Integer(u64::MAX))),
            (Some("s"), point(PointValue::Float(7.0))),
            (Some("By"), point(PointValue::Float(2.0))),
            (Some("s"), point(took)),
        ];
        assert_eq!(found(), expected);
        let page = exporter.render();
        for line in
            [format!("points_calls_total {}", u64::MAX), "points_took_seconds_sum 3.000061".to_owned()]
        {
            assert!(page.lines().any(|found| found == line), "{page}");
        }
    }
}
