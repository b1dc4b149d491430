//! A collector: sends messages of one signal, with time limits and further attempts.

use std::{io, time::Duration};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message as _;
use tokio::{
    runtime::Runtime,
    time::{Instant, sleep, timeout_at},
};
use tollgate_runtime::{backoff::Backoff, foreign_text};

use super::{
    grpc::GrpcClient,
    http::HttpClient,
    settings::{CollectorSettings, OtlpProtocol},
};

/// Maximum size of a response: it has a count and a text.
pub(super) const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Name of this program in requests.
pub(super) const USER_AGENT: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

/// Longest pause that a collector may request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// First and longest pause between two attempts.
const BACKOFF: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// Kind of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}

/// Reason why an exporter can't start.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// An unusable address of the collector.
    #[error("unusable endpoint: {0}")]
    Endpoint(String),
    /// An unusable CA file.
    #[error("unusable --otlp-ca: {0}")]
    Authorities(String),
    /// A thread or runtime that can't be started.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Failure of one attempt, with a bounded reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExportError {
    /// Another attempt may succeed.
    Temporary {
        /// Reason.
        reason: String,
        /// Pause that the collector requests.
        after: Duration,
    },
    /// Another attempt with this message would fail too.
    Permanent(String),
}

/// A connection to one signal's service of a collector.
#[derive(Debug)]
pub(crate) struct Collector(Transport);

#[derive(Debug)]
enum Transport {
    Grpc(Box<GrpcClient>),
    Http(HttpClient),
}

/// Part of an accepted message that the collector refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejected {
    /// Number of spans or points.
    pub(crate) count: u64,
    /// Reason, bounded.
    pub(crate) reason: String,
}

impl Rejected {
    /// Refused parts of two messages together, with the first reason.
    pub(crate) fn and(self, other: Self) -> Self {
        let reason = if self.reason.is_empty() { other.reason } else { self.reason };
        Self { count: self.count.saturating_add(other.count), reason }
    }
}

impl ExportError {
    pub(super) fn temporary(reason: &str) -> Self {
        Self::temporary_after(reason, Duration::ZERO)
    }

    /// A failure after which the collector requests a pause, which is bounded.
    pub(super) fn temporary_after(reason: &str, after: Duration) -> Self {
        Self::Temporary { reason: foreign_text::bounded(reason), after: after.min(MAX_RETRY_AFTER) }
    }

    pub(super) fn permanent(reason: &str) -> Self {
        Self::Permanent(foreign_text::bounded(reason))
    }
}

impl Collector {
    /// A collector, which may be unreachable. An attempt over HTTP is abandoned after `timeout`. Is to be called within the
    /// runtime that exports.
    pub(crate) fn new(
        settings: &CollectorSettings,
        signal: Signal,
        timeout: Duration,
    ) -> Result<Self, CollectorError> {
        Ok(Self(match settings.protocol {
            OtlpProtocol::Grpc => Transport::Grpc(Box::new(GrpcClient::new(settings, signal, timeout)?)),
            OtlpProtocol::Http => Transport::Http(HttpClient::new(settings, signal, timeout)?),
        }))
    }

    /// Sends an encoded message until it is accepted or refused, or the time is over; a connection without a response then is
    /// abandoned. Returns what was not accepted of it.
    ///
    /// # Errors
    /// The reason of the last failure.
    pub(crate) async fn export(&self, message: &Bytes, until: Instant) -> Result<Rejected, String> {
        let [initial, max] = BACKOFF;
        let mut backoff = Backoff::new(initial, max);
        let mut last = None;
        loop {
            let (reason, after) = match timeout_at(until, self.attempt(message.clone())).await {
                Ok(Ok(response)) => return Ok(rejected(response)),
                Ok(Err(ExportError::Permanent(reason))) => return Err(reason),
                Ok(Err(ExportError::Temporary { reason, after })) => (reason, after),
                Err(_) => {
                    self.abandon();
                    return Err(last.unwrap_or_else(|| "timeout".to_owned()));
                }
            };
            let pause = backoff.pause().max(after);
            if Instant::now().checked_add(pause).is_none_or(|next| next >= until) {
                return Err(reason);
            }
            last = Some(reason);
            sleep(pause).await;
        }
    }

    async fn attempt(&self, message: Bytes) -> Result<Bytes, ExportError> {
        match &self.0 {
            Transport::Grpc(client) => client.send(message).await,
            Transport::Http(client) => client.send(message).await,
        }
    }

    /// Abandons a connection on which an attempt had no response in time; HTTP does so by itself.
    fn abandon(&self) {
        if let Transport::Grpc(client) = &self.0 {
            client.abandon();
        }
    }
}

/// Reads the refused part of a message from its response. Responses of all signals have this in the same fields; one that is malformed
/// reports nothing.
fn rejected(response: Bytes) -> Rejected {
    let response = ExportMetricsServiceResponse::decode(response).unwrap_or_default();
    let partial = response.partial_success.unwrap_or_default();
    Rejected {
        count: u64::try_from(partial.rejected_data_points).unwrap_or_default(),
        reason: foreign_text::bounded(&partial.error_message),
    }
}

/// A runtime that may be dropped inside another one: its tasks are not awaited, which would block that runtime.
#[derive(Debug)]
pub(crate) struct OwnedRuntime(Option<Runtime>);

impl OwnedRuntime {
    pub(crate) const fn new(runtime: Runtime) -> Self {
        Self(Some(runtime))
    }

    /// Makes something whose connections belong to this runtime.
    pub(crate) fn within<T>(&self, make: impl FnOnce() -> T) -> T {
        let _within = self.0.as_ref().map(Runtime::enter);
        make()
    }

    /// Runs a future to its end.
    pub(crate) fn block_on(&self, future: impl Future<Output = ()>) {
        if let Some(runtime) = &self.0 {
            runtime.block_on(future);
        }
    }
}

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceResponse,
    };
    use tokio::{net::TcpListener, select};

    use super::*;

    #[tokio::test]
    async fn a_message_without_a_response_is_followed_by_another_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let settings = CollectorSettings {
            endpoint: format!("http://{}", listener.local_addr().expect("an address")),
            protocol: OtlpProtocol::Grpc,
            ca_certificate: None,
            headers: Vec::new(),
            service_name: String::new(),
            resource: Vec::new(),
        };
        let collector = Collector::new(&settings, Signal::Metrics, Duration::from_secs(60)).expect("valid");
        let exports = async {
            // Most of a busy machine's rounds may end before they connect.
            for _ in 0..200 {
                let until = Instant::now() + Duration::from_millis(50);
                collector.export(&Bytes::new(), until).await.expect_err("no response");
            }
        };
        // Both stay open, and are silent.
        let connections = async { [listener.accept().await, listener.accept().await] };
        select! {
            () = exports => panic!("no second connection"),
            connections = connections => assert!(connections.iter().all(Result::is_ok), "{connections:?}"),
        }
    }

    #[test]
    fn a_partial_success_is_read_from_the_response_of_any_signal() {
        let partial_success =
            Some(ExportTracePartialSuccess { rejected_spans: 3, error_message: "too\nold".to_owned() });
        let response = ExportTraceServiceResponse { partial_success }.encode_to_vec();
        let found = rejected(response.into());
        assert_eq!(found.count, 3);
        assert!(!found.reason.contains('\n'), "{found:?}");
        for malformed in [&b""[..], b"\xff", b"<html>"] {
            assert_eq!(rejected(Bytes::from_static(malformed)), Rejected::default());
        }
    }
}
