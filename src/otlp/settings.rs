//! Settings of a collector, and of the export of metrics.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use http::{HeaderName, HeaderValue};

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

/// A collector, and the resource that is exported to it. `Debug` shows no value of a header.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectorSettings {
    /// URL without a password. Over HTTP, the path of the signal is added to one that is empty or ends in a slash.
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
}

/// Export of metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricExportSettings {
    /// Where to.
    pub collector: CollectorSettings,
    /// Time between two exports.
    pub interval: Duration,
}
