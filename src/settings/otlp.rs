//! Settings of OpenTelemetry: the collector, and the exporters of traces and metrics.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use http::Uri;

use super::parsers::{self, DescriptorArgument, Headers, descriptor, duration, ratio, web_url};
use crate::{
    otlp::{CollectorSettings, MetricExportSettings, OtlpProtocol},
    tracing::TraceSettings,
};

/// Shortest interval: every export reads all metrics.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Port of OTLP over HTTP, by which a collector without a stated protocol is recognised.
const HTTP_PORT: u16 = 4318;

#[derive(Args, Debug)]
#[command(next_help_heading = "OpenTelemetry (traces need --otlp-endpoint, metrics --otlp-metrics-endpoint)")]
pub(super) struct OtlpFlags {
    /// Collector that traces are exported to by OTLP: http://HOST:PORT, or https:// for TLS. Over HTTP, v1/traces is added to
    /// a URL without a path and to one that ends in a slash.
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    otlp_endpoint: Option<String>,
    /// Share of calls, from 0 to 1, that begin a trace when they carry no trace context. A trace context has the sampling
    /// decision of its caller.
    #[arg(long, value_name = "RATIO", default_value = "0.01", value_parser = ratio)]
    trace_sample_ratio: f64,
    /// Collector that metrics are exported to by OTLP: a URL as of --otlp-endpoint, with v1/metrics over HTTP.
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    otlp_metrics_endpoint: Option<String>,
    /// Time between two exports of metrics, at least 100ms.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = interval)]
    otlp_metrics_interval: Duration,
    /// Protocol of the collectors: grpc or http/protobuf. Default: http/protobuf for port 4318, else grpc.
    #[arg(long, value_name = "PROTOCOL", value_enum, hide_possible_values = true)]
    otlp_protocol: Option<OtlpProtocol>,
    /// Protocol of the collector of metrics, if it differs from --otlp-protocol.
    #[arg(long, value_name = "PROTOCOL", value_enum, hide_possible_values = true)]
    otlp_metrics_protocol: Option<MetricsProtocol>,
    /// Headers for the collectors, such as a token, with percent-encoded values.
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = headers)]
    otlp_headers: Option<Headers>,
    /// Headers for the collector of metrics, in place of --otlp-headers.
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = headers)]
    otlp_metrics_headers: Option<Headers>,
    /// PEM file of the CAs for the certificates of the collectors. Default: the Mozilla root CAs.
    #[arg(long, value_name = "FILE")]
    otlp_ca: Option<PathBuf>,
    /// Name of the service, service.name.
    #[arg(long, value_name = "NAME", default_value = env!("CARGO_PKG_NAME"))]
    otlp_service_name: String,
    /// Resource attributes of this instance, with percent-encoded values. service.version and service.instance.id, a random
    /// UUID, need not be stated.
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = resource)]
    otlp_resource_attributes: Option<DescriptorArgument>,
}

/// Protocol of a collector of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MetricsProtocol {
    /// gRPC.
    #[value(name = "grpc")]
    Grpc,
    /// HTTP/1.1 with bodies in protobuf.
    #[value(name = "http/protobuf", alias = "http")]
    Http,
    /// The default for its port, whatever --otlp-protocol is.
    #[value(hide = true)]
    ByPort,
}

impl OtlpFlags {
    /// Exporters of traces and of metrics.
    pub(super) fn resolve(self) -> (Option<TraceSettings>, Option<MetricExportSettings>) {
        let DescriptorArgument(resource) =
            self.otlp_resource_attributes.unwrap_or(DescriptorArgument(Vec::new()));
        let collector = |endpoint: String, protocol: Option<OtlpProtocol>, headers: Option<Headers>| {
            let Headers(headers) = headers.unwrap_or_default();
            CollectorSettings {
                protocol: protocol.unwrap_or_else(|| protocol_of(&endpoint)),
                endpoint,
                ca_certificate: self.otlp_ca.clone(),
                headers,
                service_name: self.otlp_service_name.clone(),
                resource: resource.clone(),
            }
        };
        let metrics_protocol = match self.otlp_metrics_protocol {
            None => self.otlp_protocol,
            Some(MetricsProtocol::Grpc) => Some(OtlpProtocol::Grpc),
            Some(MetricsProtocol::Http) => Some(OtlpProtocol::Http),
            Some(MetricsProtocol::ByPort) => None,
        };
        let metrics = self.otlp_metrics_endpoint.map(|endpoint| MetricExportSettings {
            collector: collector(
                endpoint,
                metrics_protocol,
                self.otlp_metrics_headers.or_else(|| self.otlp_headers.clone()),
            ),
            interval: self.otlp_metrics_interval,
        });
        let traces = self.otlp_endpoint.map(|endpoint| TraceSettings {
            collector: collector(endpoint, self.otlp_protocol, self.otlp_headers),
            sample_ratio: self.trace_sample_ratio,
        });
        (traces, metrics)
    }
}

/// The protocol of a collector for which none is stated, by its port.
fn protocol_of(endpoint: &str) -> OtlpProtocol {
    let port = endpoint.parse::<Uri>().ok().and_then(|uri| uri.port_u16());
    if port == Some(HTTP_PORT) { OtlpProtocol::Http } else { OtlpProtocol::Grpc }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < MIN_INTERVAL { Err("expected at least 100ms".to_owned()) } else { Ok(interval) }
}

/// Parses headers in the syntax of OTEL_EXPORTER_OTLP_HEADERS; an empty text has none. Errors omit the values, which may be
/// secret.
fn headers(text: &str) -> Result<Headers, String> {
    if text.is_empty() { Ok(Headers::default()) } else { parsers::headers(text, decoded) }
}

/// Parses the URL of a collector, without a password, as it is logged.
fn endpoint(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected http://HOST:PORT or https://HOST:PORT, without a user";
    web_url(text, EXPECTED).map(|_| text.to_owned())
}

/// Parses resource attributes in the syntax of OTEL_RESOURCE_ATTRIBUTES.
fn resource(text: &str) -> Result<DescriptorArgument, String> {
    let DescriptorArgument(mut pairs) = descriptor(text)?;
    for (key, value) in &mut pairs {
        *key = key.trim().to_owned();
        *value = decoded(value.trim())
            .ok_or_else(|| format!("`{value}` is not percent-encoded; expected e.g. %2C for a comma"))?;
    }
    Ok(DescriptorArgument(pairs))
}

/// Decodes percent-encoded UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        let is_code = code.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(code, 16).ok().filter(|_| is_code)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_attributes_are_decoded() {
        let of = |text| resource(text).map(|DescriptorArgument(pairs)| pairs);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(of("a=b%2Cc%3D%C3%A9, d=e"), Ok(vec![pair("a", "b,c=é"), pair("d", "e")]));
        for bad in ["a=b, ", "a", "a=%", "a=%2", "a=%zz", "a=%+1", "a=%C3"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_collector_has_a_scheme_and_a_host_and_no_password() {
        for good in ["http://localhost:4317", "https://collector.example", "http://[::1]:4317/"] {
            assert_eq!(endpoint(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "localhost:4317",
            "grpc://localhost:4317",
            "http://",
            "https://user:secret@host:4317",
            "/path",
        ] {
            assert!(endpoint(bad).is_err_and(|error| !error.contains("secret")), "{bad}");
        }
    }

    fn exporters(words: &[&str]) -> (Option<TraceSettings>, Option<MetricExportSettings>) {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            otlp: OtlpFlags,
        }
        let words = ["tollgate"].iter().chain(words);
        <Flags as clap::Parser>::try_parse_from(words).expect("valid").otlp.resolve()
    }

    #[test]
    fn traces_and_metrics_have_collectors_of_their_own_with_common_settings() {
        assert_eq!(exporters(&[]), (None, None));
        assert!(exporters(&["--otlp-endpoint", "http://c:4317"]).1.is_none());
        let both = ["--otlp-endpoint", "http://c:1", "--otlp-metrics-endpoint", "http://d:2/x"];
        let common =
            ["--otlp-protocol", "http/protobuf", "--otlp-headers", "a=b%2Cc", "--otlp-service-name", "s"];
        let (traces, metrics) = exporters(&[&both[..], &common].concat());
        let (traces, metrics) = (traces.expect("stated").collector, metrics.expect("stated").collector);
        assert_eq!((&*traces.endpoint, &*metrics.endpoint), ("http://c:1", "http://d:2/x"));
        for collector in [&traces, &metrics] {
            assert_eq!((collector.protocol, &*collector.service_name), (OtlpProtocol::Http, "s"));
            assert_eq!(collector.headers[0].1, "b,c");
            assert!(!format!("{collector:?}").contains("b,c"), "values of headers may be secret");
        }
        let own = ["--otlp-metrics-protocol", "grpc", "--otlp-metrics-headers", "x=y"];
        let (traces, metrics) = exporters(&[&both[..], &common, &own].concat());
        let (traces, metrics) = (traces.expect("stated").collector, metrics.expect("stated").collector);
        assert_eq!((traces.protocol, metrics.protocol), (OtlpProtocol::Http, OtlpProtocol::Grpc));
        assert_eq!((traces.headers[0].0.as_str(), metrics.headers[0].0.as_str()), ("a", "x"));
    }

    #[test]
    fn a_collector_without_a_stated_protocol_is_recognised_by_its_port() {
        let of = |endpoint| {
            exporters(&["--otlp-metrics-endpoint", endpoint]).1.expect("stated").collector.protocol
        };
        assert_eq!(of("http://c:4318"), OtlpProtocol::Http);
        for other in ["http://c:4317", "https://c", "http://c:14318"] {
            assert_eq!(of(other), OtlpProtocol::Grpc, "{other}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_are_refused_without_their_values() {
        let Headers(read) = headers("authorization=Bearer%20x=y, X-Tenant=a").expect("good");
        assert_eq!(read[0].1, "Bearer x=y");
        assert_eq!(read[1].0.as_str(), "x-tenant");
        for bad in [
            " ",
            "secret",
            "a b=secret",
            "a=sec%0Aret",
            "a=sec%zz",
            "grpc-timeout=1S",
            "trace-bin=AA",
            "a=1,",
        ] {
            assert!(headers(bad).is_err_and(|error| !error.contains("sec")), "{bad}");
        }
    }

    #[test]
    fn an_interval_has_a_minimum() {
        assert!(interval("100ms").is_ok() && interval("99ms").is_err());
    }
}
