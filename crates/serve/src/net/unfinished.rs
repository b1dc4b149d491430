//! Memory of messages that have begun to arrive, of all ports and connections.
//!
//! A client may begin messages on as many streams and connections as it likes and finish none of them. So the bytes that wait
//! for the rest of a message have one bound for callers, one for other regions and one for HTTP. Messages that arrive in one
//! piece, as nearly all do, are not counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{mem, time::Duration};

use http::HeaderMap;
use tollgate_runtime::log_budget::LogBudget;

use super::metrics::UNFINISHED_REFUSED;
use crate::net::Port;

/// Bytes of unfinished messages beyond which a further one is refused: of the gRPC port, and of others.
const MAX_GRPC_BYTES: usize = 128 << 20;
const MAX_OTHER_BYTES: usize = 32 << 20;

/// Bytes that each header costs beside its text.
const HEADER_BYTES: usize = 64;

static GRPC: AtomicUsize = AtomicUsize::new(0);
static REGION: AtomicUsize = AtomicUsize::new(0);
static ADMIN: AtomicUsize = AtomicUsize::new(0);
static HTTP: AtomicUsize = AtomicUsize::new(0);

/// Lines logged at once, and the time after which there is another one.
static LOG: LogBudget = LogBudget::new(1, Duration::from_secs(60));

/// Bytes of one message, which are counted from the first wait for the rest until it is dropped.
#[derive(Debug)]
pub struct Unfinished {
    port: Port,
    counted: usize,
    /// Bytes to be counted once the rest has to be waited for.
    uncounted: usize,
}

/// Unfinished messages have the memory that they may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unfinished messages take too much memory; expected messages that arrive at once")]
pub struct Exhausted;

impl Unfinished {
    /// A message that takes `bytes` before any of it arrives.
    pub const fn new(port: Port, bytes: usize) -> Self {
        Self { port, counted: 0, uncounted: bytes }
    }

    /// Notes further bytes of the message.
    pub const fn add(&mut self, bytes: usize) {
        self.uncounted += bytes;
    }

    /// Counts the bytes, since the rest of the message has to be waited for, unless there are too many of all messages.
    pub fn wait(&mut self) -> Result<(), Exhausted> {
        let bytes = mem::take(&mut self.uncounted);
        if bytes == 0 {
            return Ok(());
        }
        self.counted += bytes;
        let (used, max_bytes) = self.bound();
        if used.fetch_add(bytes, Ordering::Relaxed) + bytes <= max_bytes {
            return Ok(());
        }
        UNFINISHED_REFUSED.increment([self.port.name()]);
        if let Some(suppressed) = LOG.take() {
            tracing::warn!(port = %self.port, suppressed, "too many unfinished messages; refusing calls");
        }
        Err(Exhausted)
    }

    /// Used bytes of the port, and their bound.
    const fn bound(&self) -> (&'static AtomicUsize, usize) {
        match self.port {
            Port::Grpc => (&GRPC, MAX_GRPC_BYTES),
            Port::Region => (&REGION, MAX_OTHER_BYTES),
            Port::Admin => (&ADMIN, MAX_OTHER_BYTES),
            Port::Http | Port::Metrics => (&HTTP, MAX_OTHER_BYTES),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.counted > 0 {
            self.bound().0.fetch_sub(self.counted, Ordering::Relaxed);
        }
    }
}

/// Memory that headers take.
pub fn bytes_of(headers: &HeaderMap) -> usize {
    let bytes = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + HEADER_BYTES
    };
    headers.iter().map(bytes).sum()
}
