//! Settings of the log and of the trace exporter.

use std::path::PathBuf;

use clap::ValueEnum;
use http::{HeaderName, HeaderValue};
use tracing::level_filters::LevelFilter;

/// Level and format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Least severe level that is logged.
    pub level: LevelFilter,
    /// Format of a line.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

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
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// URL of the collector, without a password. Over HTTP, the path of traces is added to one that is empty or ends in a slash.
    pub endpoint: String,
    /// Transport.
    pub protocol: OtlpProtocol,
    /// PEM file of the CAs for the certificate of the collector. `None`: the Mozilla root CAs.
    pub ca_certificate: Option<PathBuf>,
    /// Headers of every call, whose values are marked as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `service.name` of the resource.
    pub service_name: String,
    /// Other attributes of the resource.
    pub resource: Vec<(String, String)>,
    /// Share of calls without a trace context that begin a trace, from 0 to 1.
    pub sample_ratio: f64,
}
