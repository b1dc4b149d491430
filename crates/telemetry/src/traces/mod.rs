//! Traces of calls.
//!
//! A caller propagates its trace, and whether it is sampled, in the headers `traceparent` and `tracestate` (W3C Trace
//! Context); calls without them are sampled at random. A separate thread exports the spans by OTLP, so that a slow or
//! unreachable collector costs spans and nothing else.

mod collector;
mod exporter;
pub mod metrics;
mod settings;
mod span;
mod tracer;

pub use self::settings::{OtlpProtocol, TraceSettings};
pub use self::span::Span;
pub use self::tracer::{TraceExporter, Tracer};
