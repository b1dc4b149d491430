//! Export to an OpenTelemetry collector by OTLP, over gRPC or over HTTP with protobuf.
//!
//! - `collector`: sends one signal's messages, with time limits and further attempts; `grpc` and `http` are its transports.
//! - `resource`: the attributes that identify this instance.
//! - `exporter`: a thread that reads the catalogue of metrics every interval; `messages` encodes it.
//!
//! Traces (`crate::tracing`) use the collector too. Nothing here runs on a thread that decides requests.

mod collector;
mod exporter;
mod grpc;
mod http;
mod messages;
pub mod metrics;
mod resource;
mod settings;

pub use self::{
    collector::CollectorError,
    exporter::MetricExporter,
    settings::{CollectorSettings, MetricExportSettings, OtlpProtocol},
};
pub(crate) use self::{
    collector::{Collector, OwnedRuntime, Signal},
    resource::resource,
};
