//! Points of the series that the exporter of Prometheus' format records, read from its text: it has no other form.

use std::collections::HashMap;

use super::{
    declared::Declared,
    points::{MetricPoints, PointValue},
};

/// Series by the name of their metric: the text of their labels, and of their value.
#[derive(Debug, Default)]
pub(super) struct Recorded<'a>(HashMap<&'a str, Vec<(&'a str, &'a str)>>);

impl<'a> Recorded<'a> {
    /// Reads the lines of a page. The values of labels are those of closed sets, which have nothing to escape.
    pub(super) fn parse(text: &'a str) -> Self {
        let mut recorded = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').unwrap_or(labels)),
                None => (series, ""),
            };
            recorded.0.entry(name).or_default().push((labels, value));
        }
        recorded
    }

    /// The points of a metric, in the order of their labels; `None` if it has none.
    pub(super) fn take(&mut self, declared: &Declared) -> Option<MetricPoints> {
        let mut series = self.0.remove(declared.name)?;
        series.sort_unstable();
        let mut metric = MetricPoints::of(*declared);
        for (labels, value) in series {
            let values: Vec<&str> = declared.labels.iter().map(|label| value_of(labels, label)).collect();
            if let Some(value) = PointValue::number(declared, value) {
                metric.push(&values, value);
            }
        }
        Some(metric)
    }
}

/// The value of a label in the text of labels.
fn value_of<'a>(labels: &'a str, label: &str) -> &'a str {
    let mut pairs = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
    pairs.find(|(key, _)| *key == label).map_or("", |(_, value)| value.strip_suffix('"').unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MetricKind, Point};

    #[test]
    fn the_lines_of_a_metric_are_its_points() {
        let page = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"2\",y=\"b, c\"} 7\na_total{y=\"\",x=\"1\"} 0\n\n\
                    # TYPE b gauge\nb -1.5\n";
        let mut recorded = Recorded::parse(page);
        let of = |name, kind, labels| Declared { name, kind, labels, help: "" };
        let point = |labels: &[&str], value| Point {
            labels: labels.iter().map(|label| Box::from(*label)).collect(),
            value,
        };
        let counter = of("a_total", MetricKind::Counter, &["x", "y"]);
        let expected =
            [point(&["2", "b, c"], PointValue::Integer(7)), point(&["1", ""], PointValue::Integer(0))];
        assert_eq!(recorded.take(&counter).map(|metric| metric.points), Some(expected.to_vec()));
        let gauge = of("b", MetricKind::Gauge, &[]);
        let expected = vec![point(&[], PointValue::Float(-1.5))];
        assert_eq!(recorded.take(&gauge).map(|metric| metric.points), Some(expected));
        assert_eq!(recorded.take(&gauge), None);
    }
}
