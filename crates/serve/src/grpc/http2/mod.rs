//! HTTP/2 below hyper: the frames between the socket and HTTP/2, and what HTTP/2 refuses before a call is dispatched, streams
//! that it resets and connections that it ends. The caller's proxy treats these as failures, and lets requests pass by default,
//! so each is counted and some are logged.
//!
//! ```text
//! socket ──> filter, with the gate ──> HTTP/2
//! ```

pub(super) mod filter;

use std::{error::Error as _, time::Duration};

use tollgate_metrics::{CounterFamily, Metric};
use tollgate_runtime::log_budget::LogBudget;

/// Metrics of HTTP/2.
pub static METRICS: &[&dyn Metric] = &[&HTTP2_REFUSED];

static HTTP2_REFUSED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_http2_refused_total",
    &["reason"],
    "Calls that HTTP/2 reset, and connections that it ended, by error code.",
    &[["protocol_error"], ["refused_stream"], ["compression_error"], ["enhance_your_calm"]],
);

/// Lines logged at once, and the time after which there is another one.
static LOG: LogBudget = LogBudget::new(4, Duration::from_secs(60));

/// Error code of a header block that cannot be read.
const COMPRESSION_ERROR: u32 = 9;

/// Records a connection that HTTP/2 ends for a fault of the client.
pub(super) fn connection_ended(error: &hyper::Error) {
    let error = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    if let Some(reason) = error.filter(|error| error.is_library()).and_then(h2::Error::reason) {
        record(reason.into(), "connection");
    }
}

/// Records a call that HTTP/2 resets, or a connection that it ends.
fn record(code: u32, scope: &'static str) {
    // RFC 9113, section 7.
    let reason = match code {
        // The response came before the end of the request.
        0 | 8 => return,
        1 => "protocol_error",
        6 => "frame_size_error",
        7 => "refused_stream",
        COMPRESSION_ERROR => "compression_error",
        11 => "enhance_your_calm",
        _ => "other",
    };
    HTTP2_REFUSED.increment([reason]);
    if let Some(suppressed) = LOG.take() {
        tracing::warn!(reason, scope, suppressed, "refused by HTTP/2");
    }
}
