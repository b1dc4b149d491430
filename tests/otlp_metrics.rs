//! Metrics, as a collector of OpenTelemetry receives them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{
        AggregationTemporality, HistogramDataPoint, Metric, NumberDataPoint, metric::Data, number_data_point,
    },
};

use crate::support::{
    certificates::Authority,
    collector::Collector,
    http,
    timing::keeps_to_async,
    tollgate::{Tollgate, rules},
};

const RULES: &str = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 2}}\n\
                     - {key: \"a\\\"b\", rate_limit: {unit: year, requests_per_unit: 1000000}}\n";

/// Prefixes of metrics that a scrape or an export changes, or that the system changes at any time.
const MOVING: [&str; 5] = [
    "process_",
    "tollgate_otlp_metric_exports_total",
    "tollgate_connections",
    "tollgate_resident",
    "tollgate_worker_busy_seconds_total",
];

/// Series by name and labels, as a line of the page has them.
type Values = BTreeMap<String, f64>;

/// The series of a page.
fn scraped(page: &str) -> Values {
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            (series.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn text(value: &KeyValue) -> &str {
    match value.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// A series as the page has it.
fn series(name: &str, attributes: &[KeyValue], more: Option<(&str, &str)>) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = attributes.iter().map(|pair| (&*pair.key, text(pair))).chain(more);
    let labels: Vec<_> = labels.map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}

fn number(point: &NumberDataPoint) -> f64 {
    match point.value {
        Some(number_data_point::Value::AsInt(count)) => count as f64,
        Some(number_data_point::Value::AsDouble(value)) => value,
        None => panic!("{point:?}"),
    }
}

/// Adds a histogram in the form of the page.
fn add_histogram(values: &mut Values, name: &str, point: &HistogramDataPoint) {
    let mut so_far = 0;
    let bounds = point.explicit_bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(&point.bucket_counts) {
        so_far += count;
        let of_bucket = series(&format!("{name}_bucket"), &point.attributes, Some(("le", &bound)));
        values.insert(of_bucket, so_far as f64);
    }
    values.insert(series(&format!("{name}_count"), &point.attributes, None), point.count as f64);
    values.insert(series(&format!("{name}_sum"), &point.attributes, None), point.sum.expect("a sum"));
}

fn metrics(export: &ExportMetricsServiceRequest) -> impl Iterator<Item = &Metric> {
    export.resource_metrics.iter().flat_map(|all| &all.scope_metrics).flat_map(|scope| &scope.metrics)
}

/// The series of an export.
fn exported(export: &ExportMetricsServiceRequest) -> Values {
    let mut values = Values::new();
    for metric in metrics(export) {
        let mut add = |points: &[NumberDataPoint]| {
            for point in points {
                let earlier = values.insert(series(&metric.name, &point.attributes, None), number(point));
                assert_eq!(earlier, None, "{} twice", metric.name);
            }
        };
        match metric.data.as_ref().expect("data") {
            Data::Gauge(gauge) => add(&gauge.data_points),
            Data::Sum(sum) => {
                assert!(sum.is_monotonic, "{}", metric.name);
                assert_eq!(sum.aggregation_temporality(), AggregationTemporality::Cumulative);
                add(&sum.data_points);
            }
            Data::Histogram(histogram) => {
                assert_eq!(histogram.aggregation_temporality(), AggregationTemporality::Cumulative);
                histogram
                    .data_points
                    .iter()
                    .for_each(|point| add_histogram(&mut values, &metric.name, point));
            }
            other => panic!("{other:?}"),
        }
    }
    values
}

/// Type and description of each metric of a page: the types of OTLP.
fn described(page: &str) -> BTreeMap<String, (String, String)> {
    let of = |prefix: &'static str| {
        let lines = page.lines().filter_map(move |line| line.strip_prefix(prefix)?.split_once(' '));
        lines.map(|(name, text)| (name.to_owned(), text.to_owned()))
    };
    let types: BTreeMap<_, _> = of("# TYPE ").collect();
    of("# HELP ").map(|(name, help)| (name.clone(), (types[&name].clone(), help))).collect()
}

async fn eventually(complaint: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{complaint}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits for an export that began after this call.
async fn next_export(collector: &Collector) -> ExportMetricsServiceRequest {
    let before = collector.metrics().len();
    // The first may have begun before.
    eventually("no export", || collector.metrics().len() >= before + 2).await;
    collector.metrics().pop().expect("one")
}

fn is_moving(series: &str) -> bool {
    MOVING.iter().any(|prefix| series.starts_with(prefix))
}

/// Waits until an export has what the page before it has, and returns both.
async fn equal_to_page(tollgate: &Tollgate, collector: &Collector) -> (String, ExportMetricsServiceRequest) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let page = http::get(&tollgate.url("/metrics")).body;
        let export = next_export(collector).await;
        let (page_values, values) = (scraped(&page), exported(&export));
        let mut differing = Vec::new();
        for (series, value) in &page_values {
            if values.get(series) != Some(value) && !is_moving(series) {
                differing.push((series.clone(), *value, values.get(series).copied()));
            }
        }
        let names = |values: &Values| values.keys().cloned().collect::<BTreeSet<_>>();
        if differing.is_empty() && names(&page_values) == names(&values) {
            return (page, export);
        }
        let missing: Vec<_> = names(&page_values).symmetric_difference(&names(&values)).cloned().collect();
        assert!(Instant::now() < deadline, "{differing:?} {missing:?}");
    }
}

/// Traffic that is admitted and denied, and a label with characters that the page escapes.
async fn traffic(tollgate: &Tollgate) {
    let mut client = tollgate.client().await;
    for _ in 0..5 {
        client.passes("d", &[("k", "x")]).await;
        client.passes("d", &[("a\"b", "x")]).await;
    }
}

const SHORT: [&str; 2] = ["--otlp-metrics-interval", "100ms"];

#[tokio::test]
async fn every_metric_of_the_page_is_exported_over_grpc_with_its_values() {
    let (config, (collector, url)) = (rules(RULES), Collector::grpc().await);
    let flags = ["--otlp-metrics-endpoint", &url, "--otlp-headers", "x-token=a%20b", "--reference-metrics"];
    let more = ["--otlp-resource-attributes", "zone=a,service.instance.id=one"];
    let tollgate = Tollgate::start(config.path(), &[&flags[..], &more, &SHORT].concat());
    traffic(&tollgate).await;
    let (page, export) = equal_to_page(&tollgate, &collector).await;
    let values = exported(&export);
    assert_eq!(values["tollgate_rule_over_limit_total{domain=\"d\",rule=\"k\"}"], 3.0);
    assert_eq!(values["tollgate_rule_hits_total{domain=\"d\",rule=\"a\\\"b\"}"], 5.0);

    let of_page = described(&page);
    let found = metrics(&export).map(|metric| {
        let kind = match metric.data {
            Some(Data::Gauge(_)) => "gauge",
            Some(Data::Sum(_)) => "counter",
            _ => "histogram",
        };
        (metric.name.clone(), (kind.to_owned(), metric.description.clone()))
    });
    let with_series =
        of_page.into_iter().filter(|(name, _)| values.keys().any(|series| series.starts_with(name)));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), with_series.collect::<BTreeMap<_, _>>());
    let unit =
        |name: &str| metrics(&export).find(|metric| metric.name == name).expect("it is there").unit.clone();
    assert_eq!(unit("tollgate_request_duration_seconds"), "s");
    assert_eq!(unit("process_resident_memory_bytes"), "By");
    assert_eq!(unit("tollgate_rule_hits_total"), "");

    let resource = export.resource_metrics[0].resource.as_ref().expect("a resource");
    let attributes: BTreeMap<_, _> =
        resource.attributes.iter().map(|pair| (&*pair.key, text(pair))).collect();
    let version = env!("CARGO_PKG_VERSION");
    let expected = [
        ("service.name", "tollgate"),
        ("service.version", version),
        ("service.instance.id", "one"),
        ("zone", "a"),
    ];
    assert_eq!(attributes, BTreeMap::from(expected));
    assert!(collector.heads().iter().all(|(_, headers)| headers["x-token"] == "a b"));
}

#[tokio::test]
async fn every_metric_of_the_page_is_exported_over_http_with_its_values() {
    let (config, (collector, url)) = (rules(RULES), Collector::http().await);
    let flags = ["--otlp-metrics-endpoint", &url, "--otlp-metrics-protocol", "http/protobuf"];
    let tollgate = Tollgate::start(config.path(), &[&flags[..], &SHORT].concat());
    traffic(&tollgate).await;
    let (_, export) = equal_to_page(&tollgate, &collector).await;
    assert_eq!(exported(&export)["tollgate_rule_over_limit_total{domain=\"d\",rule=\"k\"}"], 3.0);
    let (path, headers) = collector.heads().remove(0);
    assert_eq!(
        (&*path, &headers["content-type"]),
        ("/v1/metrics", &"application/x-protobuf".parse().expect("a value"))
    );
}

#[tokio::test]
async fn a_collector_behind_tls_is_trusted_by_its_authority() {
    let (config, authority) = (rules(RULES), Authority::new("ours"));
    let (collector, url) = Collector::grpc_by_tls(&authority).await;
    let ca = config.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("written");
    let flags = ["--otlp-metrics-endpoint", &url, "--otlp-ca", ca.to_str().expect("UTF-8")];
    let _tollgate = Tollgate::start(config.path(), &[&flags[..], &SHORT].concat());
    next_export(&collector).await;
}

/// The value of a series of the page, if it is there.
fn value(tollgate: &Tollgate, series: &str) -> Option<f64> {
    scraped(&http::get(&tollgate.url("/metrics")).body).get(series).copied()
}

fn result(name: &str) -> String {
    format!("tollgate_otlp_metric_exports_total{{result=\"{name}\"}}")
}

#[tokio::test]
async fn a_temporary_failure_is_followed_by_another_attempt_and_a_refusal_is_counted() {
    let (config, (collector, url)) = (rules(RULES), Collector::http().await);
    collector.respond([503, 429, 400]);
    let flags = ["--otlp-metrics-endpoint", &url, "--otlp-protocol", "http/protobuf"];
    let tollgate = Tollgate::start(config.path(), &[&flags[..], &SHORT].concat());
    next_export(&collector).await;
    // Three attempts of one export, of which the last was refused for good.
    eventually("not counted", || value(&tollgate, &result("success")).is_some_and(|count| count > 0.0)).await;
    assert_eq!(value(&tollgate, &result("failed")), Some(1.0));
    assert!(tollgate.client().await.passes("d", &[("k", "x")]).await);
}

/// The exports of an instance with traffic until it ended, of which the first is at its end.
async fn exports_at_shutdown() -> Vec<ExportMetricsServiceRequest> {
    let (config, (collector, url)) = (rules(RULES), Collector::grpc().await);
    let flags = ["--otlp-metrics-endpoint", &url, "--otlp-metrics-interval", "1h"];
    let mut tollgate = Tollgate::start(config.path(), &flags);
    traffic(&tollgate).await;
    tollgate.signal("TERM");
    assert_eq!(tokio::task::spawn_blocking(move || tollgate.wait()).await.expect("it ended"), Some(0));
    collector.metrics()
}

#[tokio::test]
async fn the_last_values_are_exported_at_shutdown() {
    let mut exports = Vec::new();
    // The end does not wait for long: while the machine stalls, the export may be late.
    for _ in 0..5 {
        exports = exports_at_shutdown().await;
        if !exports.is_empty() {
            break;
        }
    }
    assert_eq!(exports.len(), 1);
    assert_eq!(exported(&exports[0])["tollgate_rule_over_limit_total{domain=\"d\",rule=\"k\"}"], 3.0);
}

/// The time to stop while a collector accepts connections and is silent.
async fn stop_with_silent_collector(protocol: &str) -> Duration {
    let config = rules(RULES);
    // The kernel accepts connections, but no process does.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("a port"));
    let flags = ["--otlp-metrics-endpoint", &url, "--otlp-protocol", protocol];
    let mut tollgate = Tollgate::start(config.path(), &[&flags[..], &SHORT].concat());
    traffic(&tollgate).await;
    let begun = Instant::now();
    tollgate.signal("TERM");
    assert_eq!(tokio::task::spawn_blocking(move || tollgate.wait()).await.expect("it ended"), Some(0));
    begun.elapsed()
}

#[tokio::test]
async fn a_silent_collector_does_not_hold_up_decisions_or_the_shutdown() {
    for protocol in ["grpc", "http/protobuf"] {
        keeps_to_async(Duration::from_secs(3), "the end", async || {
            stop_with_silent_collector(protocol).await
        })
        .await;
    }
}
