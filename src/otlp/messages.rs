//! Encodes the catalogue of metrics as OTLP messages of bounded size.

use std::mem;

use bytes::Bytes;
use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point::Value,
    },
    resource::v1::Resource,
};
use prost::Message as _;
use tollgate_core::clock::Timestamp;
use tollgate_metrics::{Declared, MetricKind, MetricPoints, Point, PointValue};

use super::resource::{attribute, scope};

/// Size of the metrics of a message, at which it is full: collectors accept 4 MiB by default.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Bytes of a label, of a bucket and of a point beyond their texts, at most.
const LABEL_BYTES: usize = 24;
const BUCKET_BYTES: usize = 16;
const POINT_BYTES: usize = 64;

/// Messages that are being filled.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    resource: &'a Resource,
    times: Times,
    max_bytes: usize,
    /// Metrics of the message that is not full yet, and their size.
    metrics: Vec<Metric>,
    bytes: usize,
    full: Vec<Bytes>,
}

/// Begin and end of the observations, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Times {
    start: u64,
    now: u64,
}

impl<'a> Messages<'a> {
    /// Messages about this instance, whose counts began at `start`.
    pub(super) fn new(resource: &'a Resource, start: Timestamp, now: Timestamp) -> Self {
        Self::of_size(resource, start, now, MAX_MESSAGE_BYTES)
    }

    fn of_size(resource: &'a Resource, start: Timestamp, now: Timestamp, max_bytes: usize) -> Self {
        let nanos = |time: Timestamp| time.as_micros().saturating_mul(1_000);
        // The clock may be set back.
        let times = Times { start: nanos(start), now: nanos(now.max(start)) };
        Self { resource, times, max_bytes, metrics: Vec::new(), bytes: 0, full: Vec::new() }
    }

    /// Adds a metric, in parts if it does not fit into one message.
    pub(super) fn add(&mut self, metric: MetricPoints) {
        let MetricPoints { declared, points } = metric;
        let head = declared.name.len().saturating_add(declared.help.len()).saturating_add(POINT_BYTES);
        self.bytes = self.bytes.saturating_add(head);
        let mut part = Vec::new();
        for point in points {
            let size = size(&declared, &point);
            if self.bytes.saturating_add(size) > self.max_bytes
                && !(part.is_empty() && self.metrics.is_empty())
            {
                self.push(&declared, mem::take(&mut part));
                self.complete();
                self.bytes = head;
            }
            self.bytes = self.bytes.saturating_add(size);
            part.push(point);
        }
        self.push(&declared, part);
    }

    /// All messages.
    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.complete();
        self.full
    }

    fn push(&mut self, declared: &Declared, points: Vec<Point>) {
        if !points.is_empty() {
            self.metrics.push(encoded(declared, points, self.times));
        }
    }

    /// Encodes the message that was filled, so that only its bytes are kept.
    fn complete(&mut self) {
        if self.metrics.is_empty() {
            return;
        }
        let scope_metrics = ScopeMetrics {
            scope: Some(scope()),
            metrics: mem::take(&mut self.metrics),
            ..ScopeMetrics::default()
        };
        let resource_metrics = ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics: vec![scope_metrics],
            ..ResourceMetrics::default()
        };
        let message = ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] };
        self.full.push(message.encode_to_vec().into());
        self.bytes = 0;
    }
}

/// Size of a point, rounded up.
fn size(declared: &Declared, point: &Point) -> usize {
    let keys = declared.labels.iter().map(|key| key.len());
    let labels = keys.zip(&point.labels).map(|(key, value)| key.saturating_add(value.len()));
    let labels =
        labels.map(|texts| texts.saturating_add(LABEL_BYTES)).fold(POINT_BYTES, usize::saturating_add);
    match &point.value {
        PointValue::Integer(_) | PointValue::Float(_) => labels,
        PointValue::Distribution { buckets, .. } => {
            labels.saturating_add(buckets.len().saturating_mul(BUCKET_BYTES))
        }
    }
}

/// A metric with some of its points.
fn encoded(declared: &Declared, points: Vec<Point>, times: Times) -> Metric {
    let temporality = AggregationTemporality::Cumulative.into();
    let data = match declared.kind {
        MetricKind::Counter => Data::Sum(Sum {
            data_points: numbers(declared, points, times),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        // A gauge has no start.
        MetricKind::Gauge => {
            Data::Gauge(Gauge { data_points: numbers(declared, points, Times { start: 0, ..times }) })
        }
        MetricKind::Histogram => Data::Histogram(Histogram {
            data_points: distributions(declared, points, times),
            aggregation_temporality: temporality,
        }),
    };
    Metric {
        name: declared.name.to_owned(),
        description: declared.help.to_owned(),
        unit: declared.unit().unwrap_or_default().to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn numbers(declared: &Declared, points: Vec<Point>, Times { start, now }: Times) -> Vec<NumberDataPoint> {
    let number = |point: Point| {
        let value = match point.value {
            PointValue::Integer(count) => Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX)),
            PointValue::Float(value) => Value::AsDouble(value),
            PointValue::Distribution { .. } => return None,
        };
        Some(NumberDataPoint {
            attributes: attributes(declared, &point.labels),
            start_time_unix_nano: start,
            time_unix_nano: now,
            value: Some(value),
            ..NumberDataPoint::default()
        })
    };
    points.into_iter().filter_map(number).collect()
}

fn distributions(
    declared: &Declared,
    points: Vec<Point>,
    Times { start, now }: Times,
) -> Vec<HistogramDataPoint> {
    let distribution = |point: Point| {
        let PointValue::Distribution { bounds, buckets, sum } = point.value else { return None };
        Some(HistogramDataPoint {
            attributes: attributes(declared, &point.labels),
            start_time_unix_nano: start,
            time_unix_nano: now,
            count: buckets.iter().copied().fold(0, u64::saturating_add),
            sum: Some(sum),
            bucket_counts: buckets,
            explicit_bounds: bounds,
            ..HistogramDataPoint::default()
        })
    };
    points.into_iter().filter_map(distribution).collect()
}

fn attributes(
    declared: &Declared,
    values: &[Box<str>],
) -> Vec<opentelemetry_proto::tonic::common::v1::KeyValue> {
    declared.labels.iter().zip(values).map(|(key, value)| attribute(key, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: Declared =
        Declared { name: "calls_total", kind: MetricKind::Counter, labels: &["a"], help: "Calls." };

    fn messages(metrics: Vec<MetricPoints>, max_bytes: usize) -> Vec<Vec<Metric>> {
        let resource = Resource::default();
        let [start, now] = [5, 7].map(Timestamp::from_micros);
        let mut messages = Messages::of_size(&resource, start, now, max_bytes);
        metrics.into_iter().for_each(|metric| messages.add(metric));
        let decoded = messages.finish().into_iter().map(|bytes| {
            assert!(bytes.len() <= max_bytes + 256, "{} bytes", bytes.len());
            let mut message = ExportMetricsServiceRequest::decode(bytes).expect("valid");
            message.resource_metrics.remove(0).scope_metrics.remove(0).metrics
        });
        decoded.collect()
    }

    fn point(label: &str, value: PointValue) -> Point {
        Point { labels: vec![label.into()], value }
    }

    fn calls(count: usize) -> MetricPoints {
        let points = (0..count).map(|number| point(&number.to_string(), PointValue::Integer(number as u64)));
        MetricPoints { declared: CALLS, points: points.collect() }
    }

    /// The labels of the points of a counter.
    fn labels(metric: &Metric) -> Vec<String> {
        let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
        sum.data_points.iter().map(|point| format!("{:?}", point.attributes)).collect()
    }

    #[test]
    fn kinds_units_times_and_labels_are_those_of_the_catalogue() {
        let declared = |name, kind| Declared { name, kind, labels: &["a"], help: "X." };
        let took = PointValue::Distribution { bounds: vec![0.5, 1.0], buckets: vec![1, 0, 2], sum: 7.5 };
        let found = messages(
            vec![
                MetricPoints { declared: CALLS, points: vec![point("x", PointValue::Integer(u64::MAX))] },
                MetricPoints {
                    declared: declared("size_bytes", MetricKind::Gauge),
                    points: vec![point("x", PointValue::Float(1.5))],
                },
                MetricPoints {
                    declared: declared("took_seconds", MetricKind::Histogram),
                    points: vec![point("x", took)],
                },
            ],
            1 << 20,
        );
        let [calls, size, took] = &found[0][..] else { panic!("{found:?}") };
        assert_eq!((&*calls.name, &*calls.description, &*calls.unit), ("calls_total", "Calls.", ""));
        assert_eq!((&*size.unit, &*took.unit), ("By", "s"));
        let Some(Data::Sum(sum)) = &calls.data else { panic!("{calls:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality() == AggregationTemporality::Cumulative);
        let first = &sum.data_points[0];
        assert_eq!(first.value, Some(Value::AsInt(i64::MAX)));
        assert_eq!((first.start_time_unix_nano, first.time_unix_nano), (5_000, 7_000));
        assert_eq!(first.attributes, [attribute("a", "x")]);
        let Some(Data::Gauge(gauge)) = &size.data else { panic!("{size:?}") };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(1.5)));
        let Some(Data::Histogram(histogram)) = &took.data else { panic!("{took:?}") };
        let first = &histogram.data_points[0];
        assert_eq!((first.count, first.sum, &*first.bucket_counts), (3, Some(7.5), &[1, 0, 2][..]));
        assert_eq!(first.explicit_bounds, [0.5, 1.0]);
    }

    #[test]
    fn a_message_has_a_bounded_size_and_no_point_is_lost_or_doubled() {
        for max_bytes in [1, 300, 1_000, 5_000, 1 << 20] {
            let found = messages(vec![calls(100), calls(7)], max_bytes);
            let all: Vec<String> = found.iter().flatten().flat_map(labels).collect();
            let expected: Vec<String> = [calls(100), calls(7)]
                .iter()
                .flat_map(|metric| {
                    labels(&encoded(&metric.declared, metric.points.clone(), Times { start: 0, now: 0 }))
                })
                .collect();
            assert_eq!(all, expected, "{max_bytes}");
            assert_eq!(found.len() == 1, max_bytes == 1 << 20, "{}", found.len());
        }
    }

    #[test]
    fn no_message_is_sent_without_metrics() {
        assert!(messages(Vec::new(), 1 << 20).is_empty());
        assert!(messages(vec![MetricPoints { declared: CALLS, points: Vec::new() }], 1 << 20).is_empty());
    }
}
