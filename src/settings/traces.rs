//! Settings of the trace exporter.

use std::path::PathBuf;

use clap::Args;
use http::Uri;

use super::parsers::{DescriptorArgument, descriptor, ratio};
use crate::tracing::TraceSettings;

#[derive(Args, Debug)]
#[command(next_help_heading = "Traces (disabled without --otlp-endpoint)")]
pub(super) struct TraceFlags {
    /// Collector that traces are exported to by OTLP over gRPC: http://HOST:PORT, or https:// for TLS. Its headers are in
    /// OTEL_EXPORTER_OTLP_HEADERS.
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    otlp_endpoint: Option<String>,
    /// PEM file of the CAs for the certificate of the collector. Default: the Mozilla root CAs.
    #[arg(long, value_name = "FILE")]
    otlp_ca: Option<PathBuf>,
    /// Name of the service in traces.
    #[arg(long, value_name = "NAME", default_value = env!("CARGO_PKG_NAME"))]
    otlp_service_name: String,
    /// Resource attributes of this instance, with percent-encoded values.
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = resource)]
    otlp_resource_attributes: Option<DescriptorArgument>,
    /// Share of calls, from 0 to 1, that begin a trace when they carry no trace context. A trace context has the sampling
    /// decision of its caller.
    #[arg(long, value_name = "RATIO", default_value = "0.01", value_parser = ratio)]
    trace_sample_ratio: f64,
}

impl TraceFlags {
    pub(super) fn resolve(self) -> Option<TraceSettings> {
        Some(TraceSettings {
            endpoint: self.otlp_endpoint?,
            ca_certificate: self.otlp_ca,
            sample_ratio: self.trace_sample_ratio,
            service_name: self.otlp_service_name,
            resource: self
                .otlp_resource_attributes
                .map(|DescriptorArgument(pairs)| pairs)
                .unwrap_or_default(),
        })
    }
}

/// Parses the URL of a collector, without a password, as it is logged.
fn endpoint(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected http://HOST:PORT or https://HOST:PORT, without a user";
    let uri: Uri = text.parse().map_err(|_| EXPECTED)?;
    let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    match uri.authority() {
        Some(authority) if has_scheme && !authority.as_str().contains('@') => Ok(text.to_owned()),
        Some(_) | None => Err(EXPECTED.to_owned()),
    }
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
}
