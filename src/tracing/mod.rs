//! What the process tells of itself while it runs: its log, and traces of its calls.
//!
//! A trace follows one request of a client through all services. A caller that takes part tells of it in the headers
//! `traceparent` and `tracestate` (W3C Trace Context), and whether it is recorded; calls without them are recorded by
//! chance. What is recorded goes to a collector by OTLP over gRPC, from a thread of its own: a collector that is slow
//! or gone costs spans, and nothing else.

mod context;
mod deliver;
mod log;
pub mod metrics;
mod record;
mod span;
mod traces;

pub use self::{
    log::install,
    span::Span,
    traces::{Traces, TracesError, Tracing},
};
