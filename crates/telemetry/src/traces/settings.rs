//! Settings of the log and of the trace exporter.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use http::Uri;
use percent_encoding::percent_decode_str;
use tollgate_flags::{self as flags, DescriptorArgument, Headers, SERVER_URL, descriptor, ratio, web_url};

/// Port of OTLP over HTTP, by which a collector without a stated protocol is recognised.
const HTTP_PORT: u16 = 4318;

/// Transport of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OtlpProtocol {
    /// gRPC.
    #[value(name = "grpc")]
    Grpc,
    /// HTTP/1.1 with bodies in protobuf.
    #[value(name = "http/protobuf", alias = "http")]
    Http,
}

/// Exporter of traces, and its sampling. `Debug` shows no value of a header.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "OpenTelemetry (requires --otlp-endpoint)")]
pub struct TraceSettings {
    /// Collector that traces are exported to by OTLP: http://HOST:PORT, or https:// for TLS. Over HTTP, v1/traces is added to
    /// a URL without a path and to one that ends in a slash.
    #[arg(id = "otlp-endpoint", long, value_name = "URL", value_parser = endpoint)]
    pub endpoint: Option<String>,
    /// Share of calls, from 0 to 1, that begin a trace when they carry no trace context. A trace context has the sampling
    /// decision of its caller.
    #[arg(id = "trace-sample-ratio", long, value_name = "RATIO", default_value = "0.01", value_parser = ratio)]
    pub sample_ratio: f64,
    /// Protocol of the collector: grpc or http/protobuf. Default: http/protobuf for port 4318, else grpc.
    #[arg(id = "otlp-protocol", long, value_name = "PROTOCOL", value_enum, hide_possible_values = true)]
    pub(super) protocol: Option<OtlpProtocol>,
    /// Headers for the collector, such as a token, with percent-encoded values.
    #[arg(id = "otlp-headers", long, value_name = "NAME=VALUE,…", value_parser = headers)]
    pub headers: Option<Headers>,
    /// PEM file of the CAs for the certificate of the collector. Default: the Mozilla root CAs.
    #[arg(id = "otlp-ca", long, value_name = "FILE")]
    pub ca_certificate: Option<PathBuf>,
    /// Name of the service, service.name.
    #[arg(id = "otlp-service-name", long, value_name = "NAME", default_value = "tollgate")]
    pub service_name: String,
    /// Resource attributes of this instance, with percent-encoded values. service.version and service.instance.id, a random
    /// UUID, need not be stated.
    #[arg(id = "otlp-resource-attributes", long, value_name = "KEY=VALUE,…", value_parser = resource)]
    pub resource: Option<DescriptorArgument>,
}

impl TraceSettings {
    /// Protocol of the collector, by its port if none is stated.
    pub(super) fn protocol(&self) -> OtlpProtocol {
        let port = || self.endpoint.as_ref()?.parse::<Uri>().ok()?.port_u16();
        self.protocol.unwrap_or_else(|| match port() {
            Some(HTTP_PORT) => OtlpProtocol::Http,
            _ => OtlpProtocol::Grpc,
        })
    }
}

/// Parses headers in the syntax of OTEL_EXPORTER_OTLP_HEADERS. Errors omit the values, which may be secret.
fn headers(text: &str) -> Result<Headers, flags::Secret> {
    flags::headers(text, decoded)
}

/// Parses the URL of a collector, without a password, as it is logged.
fn endpoint(text: &str) -> Result<String, String> {
    web_url(text, SERVER_URL).map(|_| text.to_owned())
}

/// Parses resource attributes in the syntax of OTEL_RESOURCE_ATTRIBUTES.
fn resource(text: &str) -> Result<DescriptorArgument, String> {
    let mut pairs = descriptor(text)?;
    for (key, value) in &mut pairs {
        *key = key.trim().to_owned();
        *value = decoded(value.trim())
            .ok_or_else(|| format!("`{value}` is not percent-encoded; expected e.g. %2C for a comma"))?;
    }
    Ok(pairs)
}

/// Decodes percent-encoded UTF-8.
fn decoded(text: &str) -> Option<String> {
    // The crate would keep a malformed sequence as it is.
    let is_code =
        |part: &str| part.get(..2).is_some_and(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    text.split('%').skip(1).all(is_code).then(|| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_fixtures::settings;

    #[test]
    fn resource_attributes_are_decoded() {
        let of = resource;
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

    #[test]
    fn values_of_headers_are_not_shown() {
        assert_eq!(settings::<TraceSettings>("--otlp-protocol grpc").endpoint, None);
        let line = "--otlp-endpoint http://c:1/x --otlp-protocol http/protobuf --otlp-headers a=b%2Cc";
        let traces: TraceSettings = settings(line);
        assert_eq!(
            (traces.endpoint.as_deref(), traces.protocol()),
            (Some("http://c:1/x"), OtlpProtocol::Http)
        );
        assert!(!format!("{traces:?}").contains("b,c"), "values of headers may be secret");
        assert_eq!(traces.headers.expect("stated")[0].1, "b,c");
    }

    #[test]
    fn a_collector_without_a_stated_protocol_is_recognised_by_its_port() {
        let of =
            |endpoint: &str| settings::<TraceSettings>(&format!("--otlp-endpoint {endpoint}")).protocol();
        assert_eq!(of("http://c:4318"), OtlpProtocol::Http);
        for other in ["http://c:4317", "https://c", "http://c:14318"] {
            assert_eq!(of(other), OtlpProtocol::Grpc, "{other}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_are_refused_without_their_values() {
        let read = headers("authorization=Bearer%20x=y, X-Tenant=a").expect("good");
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
            assert!(headers(bad).is_err_and(|error| !error.0.contains("sec")), "{bad}");
        }
    }
}
