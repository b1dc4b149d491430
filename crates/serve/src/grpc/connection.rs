//! One gRPC connection, from accept to close.
//!
//! Served by hyper rather than by tonic's `Server`: that one (0.14) never sends GOAWAY to a connection past its maximum
//! age if a grace period is set too, and starts a timer for every call with a deadline.

use std::{pin::pin, time::Duration};

use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;
use tollgate_runtime::{backoff, panics::CatchUnwindExecutor};

use super::http2::{self, filter::FrameFilter};
use super::unread_responses::{CloseReason, StallDetector};
use super::{dispatch::Dispatch, service::UnaryService};
use crate::grpc::GrpcSettings;
use crate::net::read_budget::{BudgetedReader, ReadBudget, ReadBudgetTimer, Unread};
use crate::net::{stall_timeout::StallTimeout, tls::Tls};

/// Calls of one connection that may be reset before they are accepted.
const MAX_PENDING_RESETS: usize = 4096;

/// Bytes of a response buffered until its caller's flow-control window opens. Nearly all are smaller.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Size limit of a call's headers.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// Maximum number of calls in flight on a connection, at which Envoy opens another one.
const MAX_STREAMS: u32 = 1024;

/// Jitter of the maximum age, so that connections opened together do not close together.
const MAX_AGE_JITTER_PERCENT: u32 = 10;

/// Time for a connection that is closed for another one to finish the calls that its client has begun.
const EVICTION_GRACE: Duration = Duration::from_secs(1);

/// Settings shared by a worker's connections.
#[derive(Clone)]
pub struct Connections {
    http2: Builder<CatchUnwindExecutor>,
    tls: Option<Tls>,
    handshake_timeout: Duration,
    /// Time without progress after which a client counts as stalled.
    stall_timeout: Duration,
    max_age: Option<Duration>,
    max_age_grace: Option<Duration>,
    draining: CancellationToken,
}

impl Connections {
    /// Connections finish their calls in flight and close once `draining` is cancelled.
    pub fn new(
        settings: &GrpcSettings,
        tls: Option<Tls>,
        handshake_timeout: Duration,
        draining: CancellationToken,
    ) -> Self {
        let mut http2 = Builder::new(CatchUnwindExecutor);
        http2
            .keep_alive_interval(settings.keepalive_interval)
            .keep_alive_timeout(settings.keepalive_timeout)
            .max_concurrent_streams(MAX_STREAMS)
            // A proxy resets every call that timed out, in bursts when the store is slow. That is no attack, to be
            // punished by closing the connection with all other calls on it.
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .max_header_list_size(MAX_HEADER_BYTES)
            // A proxy has no use for the date.
            .auto_date_header(false);
        Self {
            http2,
            tls,
            handshake_timeout,
            stall_timeout: settings.keepalive_timeout,
            max_age: settings.max_connection_age,
            max_age_grace: settings.max_connection_age_grace,
            draining,
        }
    }

    /// Serves a connection until it closes.
    pub async fn serve<I, T>(self, io: I, services: Dispatch<T>, detector: StallDetector)
    where
        I: AsyncRead + AsyncWrite + Unread + Unpin,
        T: UnaryService,
    {
        let read_budget = ReadBudget::default();
        let io = BudgetedReader::new(io, read_budget.clone());
        let services = services.for_connection(read_budget.clone(), detector);
        read_budget.limit(self.serve_stream(io, services)).await;
    }

    async fn serve_stream<I, T>(self, io: I, services: Dispatch<T>)
    where
        I: AsyncRead + AsyncWrite + Unpin,
        T: UnaryService,
    {
        let Some(tls) = &self.tls else { return self.serve_http2(io, services).await };
        // Also while draining: earlier connections are served, as on a plaintext port.
        let accepted = select! {
            accepted = tls.accept(io, self.handshake_timeout) => accepted,
            _ = services.detector.stalled(self.stall_timeout) => None,
        };
        if let Some(stream) = accepted {
            Box::pin(self.serve_http2(stream, services)).await;
        }
    }

    async fn serve_http2<I, T>(&self, io: I, services: Dispatch<T>)
    where
        I: AsyncRead + AsyncWrite + Unpin,
        T: UnaryService,
    {
        let io = StallTimeout::new(io, self.stall_timeout).with_preface_timeout(self.handshake_timeout);
        let detector = services.detector.clone();
        let read_budget = services.read_budget.clone();
        let io =
            FrameFilter::new(io, services.early_admission(), detector.leases().clone(), read_budget.clone());
        let mut http2 = self.http2.clone();
        http2.timer(ReadBudgetTimer { read_budget, timer: TokioTimer::new() });
        let mut connection = pin!(http2.serve_connection(TokioIo::new(io), services));
        let mut grace = self.max_age_grace;
        select! {
            biased;
            result = connection.as_mut() => return log_error(result),
            reason = detector.stalled(self.stall_timeout) => match reason {
                CloseReason::Stalled => return log_stalled(),
                CloseReason::Evicted => grace = Some(EVICTION_GRACE),
            },
            () = self.draining.cancelled() => {}
            () = after(self.max_age.map(|age| backoff::around(age, MAX_AGE_JITTER_PERCENT))) => {}
        }
        // Sends GOAWAY: the client opens another connection for its next calls.
        connection.as_mut().graceful_shutdown();
        let stalled = async {
            match detector.stalled(self.stall_timeout).await {
                CloseReason::Stalled => log_stalled(),
                CloseReason::Evicted => sleep(EVICTION_GRACE).await,
            }
        };
        select! {
            biased;
            result = connection => log_error(result),
            () = stalled => {}
            () = after(grace) => tracing::debug!("connection closed: calls outlasted the grace period"),
        }
    }
}

fn log_stalled() {
    tracing::debug!("connection closed: client stopped reading responses");
}

fn log_error(result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        http2::connection_ended(&error);
        tracing::debug!(%error, "connection failed");
    }
}

async fn after(duration: Option<Duration>) {
    if let Some(duration) = duration { sleep(duration).await } else { std::future::pending().await }
}
