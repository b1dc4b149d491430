//! Variables of the specification of OpenTelemetry: the collectors of traces and of metrics.
//!
//! Traces are exported if there is an endpoint. Metrics, which Prometheus scrapes otherwise, need an endpoint of their own, or
//! `OTEL_METRICS_EXPORTER=otlp`.

use http::Uri;

use super::traces;
use crate::settings::{
    environment::{Environment, Setting},
    parsers::boolean,
};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const METRICS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
const METRICS_HEADERS: &str = "OTEL_EXPORTER_OTLP_METRICS_HEADERS";
const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";

/// A variable that is set, with its value as the flag has it.
type Found = (&'static str, String);

/// Whether traces or metrics are exported.
pub(super) fn is_exporting(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    traces::are_exported(environment, &given)
        || given("otlp-metrics-endpoint")
        || metrics_endpoint(environment).is_some()
}

/// The endpoint of traces.
pub(super) fn traces_endpoint(environment: &Environment) -> Option<Found> {
    let is_off = is_disabled(environment) || exporter(environment, "OTEL_TRACES_EXPORTER") == Some(false);
    if is_off { None } else { first(environment, &[TRACES_ENDPOINT]).or_else(|| base(environment)) }
}

/// The endpoint of metrics.
fn metrics_endpoint(environment: &Environment) -> Option<Found> {
    if is_disabled(environment) {
        return None;
    }
    let own = || first(environment, &[METRICS_ENDPOINT]);
    match exporter(environment, "OTEL_METRICS_EXPORTER") {
        None => own(),
        Some(true) => own().or_else(|| base(environment)),
        Some(false) => None,
    }
}

/// The flags that the variables set.
pub(super) fn settings(environment: &Environment, given: impl Fn(&str) -> bool) -> Vec<Setting> {
    let (mut settings, mut found) = (Vec::new(), Vec::new());
    if traces::are_exported(environment, &given) {
        found.push(("otlp-endpoint", traces_endpoint(environment)));
        found.push(("otlp-protocol", traces::protocol(environment)));
        found.push(("otlp-headers", first(environment, &[TRACES_HEADERS, HEADERS])));
    }
    if given("otlp-metrics-endpoint") || metrics_endpoint(environment).is_some() {
        found.push(("otlp-metrics-endpoint", metrics_endpoint(environment)));
        let own = ["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", PROTOCOL];
        let protocol = first(environment, &own).or_else(|| by_port(environment, &given));
        found.push(("otlp-metrics-protocol", protocol));
        found.push(("otlp-metrics-headers", metrics_headers(environment)));
        let interval = first(environment, &[INTERVAL]).map(|(name, millis)| (name, format!("{millis}ms")));
        found.push(("otlp-metrics-interval", interval));
    }
    for (flag, found) in found {
        if let Some((variable, value)) = found.filter(|_| !given(flag)) {
            settings.push(Setting { flag, variable: variable.to_owned(), value });
        }
    }
    settings
}

/// Headers of the collector of metrics. Those of traces, which may be secret, are never sent there.
fn metrics_headers(environment: &Environment) -> Option<Found> {
    let none_of_traces = || environment.get(TRACES_HEADERS).map(|_| (TRACES_HEADERS, String::new()));
    first(environment, &[METRICS_HEADERS, HEADERS]).or_else(none_of_traces)
}

/// The protocol of a collector of metrics by its port, if a variable states that of traces, which has no meaning for metrics.
fn by_port(environment: &Environment, given: impl Fn(&str) -> bool) -> Option<Found> {
    if given("otlp-protocol") {
        return None;
    }
    let own = first(environment, &[METRICS_ENDPOINT]).map(|(name, _)| name);
    let (name, _) = own.map(|name| (name, String::new())).or_else(|| traces::protocol(environment))?;
    Some((name, "by-port".to_owned()))
}

pub(super) fn port(endpoint: &str) -> Option<u16> {
    endpoint.parse::<Uri>().ok()?.port_u16()
}

/// The first of these variables that is set.
pub(super) fn first(environment: &Environment, names: &[&'static str]) -> Option<Found> {
    names.iter().find_map(|name| Some((*name, environment.get(name)?.to_owned())))
}

/// The endpoint of all signals, whose paths are added to it.
fn base(environment: &Environment) -> Option<Found> {
    let (name, mut endpoint) = first(environment, &[ENDPOINT])?;
    let has_path = endpoint.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if has_path && !endpoint.ends_with('/') {
        endpoint.push('/');
    }
    Some((name, endpoint))
}

fn is_disabled(environment: &Environment) -> bool {
    environment.get("OTEL_SDK_DISABLED").map(boolean) == Some(Ok(true))
}

/// Whether a list of exporters, if there is one, has OTLP.
fn exporter(environment: &Environment, name: &str) -> Option<bool> {
    Some(environment.get(name)?.split(',').any(|exporter| exporter.trim().eq_ignore_ascii_case("otlp")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let pairs = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let mut found: Vec<_> = settings(&Environment::new(pairs), |_| false)
            .into_iter()
            .map(|setting| (setting.flag, setting.value))
            .collect();
        found.sort_unstable();
        found
    }

    fn flags(expected: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        expected.iter().map(|(flag, value)| (*flag, (*value).to_owned())).collect()
    }

    const GENERAL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base");

    #[test]
    fn a_general_endpoint_is_one_of_traces_and_of_metrics_only_if_these_are_selected() {
        let traces = ("otlp-endpoint", "http://c:4318/base/");
        let metrics = ("otlp-metrics-endpoint", "http://c:4318/base/");
        assert_eq!(found(&[GENERAL]), flags(&[traces]));
        for list in ["otlp", "prometheus, OTLP"] {
            assert_eq!(found(&[GENERAL, ("OTEL_METRICS_EXPORTER", list)]), flags(&[traces, metrics]));
        }
        assert_eq!(found(&[GENERAL, ("OTEL_METRICS_EXPORTER", "prometheus")]), flags(&[traces]));
        let only_metrics = [GENERAL, ("OTEL_METRICS_EXPORTER", "otlp"), ("OTEL_TRACES_EXPORTER", "none")];
        assert_eq!(found(&only_metrics), flags(&[metrics]));
        assert_eq!(found(&[GENERAL, ("OTEL_METRICS_EXPORTER", "otlp"), ("OTEL_SDK_DISABLED", "true")]), []);
        assert_eq!(found(&[("OTEL_METRICS_EXPORTER", "otlp"), ("OTEL_METRIC_EXPORT_INTERVAL", "1")]), []);
    }

    #[test]
    fn an_endpoint_of_one_signal_is_used_as_it_is() {
        let own = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/push"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:4318/push"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
        ];
        let expected = [
            ("otlp-endpoint", "http://t:1/push"),
            ("otlp-metrics-endpoint", "http://m:4318/push"),
            ("otlp-metrics-interval", "5000ms"),
            ("otlp-metrics-protocol", "by-port"),
        ];
        assert_eq!(found(&own), flags(&expected));
        assert_eq!(found(&[&[GENERAL][..], &own].concat()), flags(&expected));
    }

    #[test]
    fn the_variable_of_a_signal_overrides_the_general_one() {
        let both = [GENERAL, ("OTEL_METRICS_EXPORTER", "otlp")];
        let general = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_HEADERS", "a=b")];
        let of = |more: &[(&'static str, &'static str)]| {
            let all = found(&[&both[..], &general, more].concat());
            all.into_iter().filter(|(flag, _)| !flag.ends_with("endpoint")).collect::<Vec<_>>()
        };
        let expected = |traces: [&str; 2], metrics: [&str; 2]| {
            flags(&[
                ("otlp-headers", traces[1]),
                ("otlp-metrics-headers", metrics[1]),
                ("otlp-metrics-protocol", metrics[0]),
                ("otlp-protocol", traces[0]),
            ])
        };
        assert_eq!(of(&[]), expected(["grpc", "a=b"], ["grpc", "a=b"]));
        let metrics = [
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "m=n"),
        ];
        assert_eq!(of(&metrics), expected(["grpc", "a=b"], ["http/protobuf", "m=n"]));
        let traces = [
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "t=u"),
        ];
        assert_eq!(of(&traces), expected(["http/protobuf", "t=u"], ["grpc", "a=b"]));
    }

    #[test]
    fn the_protocol_of_traces_is_not_that_of_metrics() {
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc");
        let protocols = |variables: &[(&str, &str)], given: &str| {
            let pairs = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let found = settings(&Environment::new(pairs), |flag| given == flag);
            let found = found.into_iter().filter(|setting| setting.flag.ends_with("protocol"));
            let mut found: Vec<_> = found.map(|setting| (setting.flag, setting.value)).collect();
            found.sort_unstable();
            found
        };
        let both = flags(&[("otlp-metrics-protocol", "by-port"), ("otlp-protocol", "grpc")]);
        assert_eq!(protocols(&[GENERAL, ("OTEL_METRICS_EXPORTER", "otlp"), traces], ""), both);
        assert_eq!(protocols(&[GENERAL, traces], "otlp-metrics-endpoint"), both);
        // That of both collectors is stated.
        assert_eq!(protocols(&[GENERAL, ("OTEL_METRICS_EXPORTER", "otlp"), traces], "otlp-protocol"), []);
    }

    #[test]
    fn headers_of_traces_are_not_sent_to_a_collector_of_metrics() {
        let variables =
            [GENERAL, ("OTEL_METRICS_EXPORTER", "otlp"), ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "token=x")];
        let headers: Vec<_> =
            found(&variables).into_iter().filter(|(flag, _)| flag.ends_with("headers")).collect();
        assert_eq!(headers, flags(&[("otlp-headers", "token=x"), ("otlp-metrics-headers", "")]));
    }
}
