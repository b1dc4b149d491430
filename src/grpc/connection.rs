//! One gRPC connection, from its first byte to its last.
//!
//! Served by hyper rather than by tonic's `Server`: that one (0.14) never sends GOAWAY to a connection that
//! grew too old when a grace is set as well, and starts a timer for every call that has a deadline.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    pin::pin,
    time::Duration,
};

use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{dispatch::Dispatch, stalled_reader::Uptake};
use crate::{
    net::{stall_timeout::Guarded, tls::Tls},
    panics::CatchUnwindExecutor,
    proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService,
    settings::GrpcSettings,
};

/// Calls of one connection that may be reset before they were looked at.
const PENDING_RESETS: usize = 4096;

/// Bytes of an answer that wait for room in its caller's window. Nearly all are smaller.
const SEND_BUFFER: usize = 64 * 1024;

/// Bytes of a call's headers.
const MAX_HEADERS: u32 = 16 * 1024;

/// How a worker's connections are served.
#[derive(Clone)]
pub(crate) struct Connections {
    http2: Builder<CatchUnwindExecutor>,
    tls: Option<Tls>,
    handshake_timeout: Duration,
    patience: Duration,
    max_age: Option<Duration>,
    grace: Option<Duration>,
    draining: CancellationToken,
}

impl Connections {
    /// Connections that finish what they have begun, and end, once `draining` is cancelled.
    pub(crate) fn new(
        settings: &GrpcSettings,
        tls: Option<Tls>,
        handshake_timeout: Duration,
        draining: CancellationToken,
    ) -> Self {
        let mut http2 = Builder::new(CatchUnwindExecutor);
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(settings.keepalive_interval)
            .keep_alive_timeout(settings.keepalive_timeout)
            .max_concurrent_streams(settings.max_streams)
            // A proxy resets every call that it stopped waiting for, in bursts when the store is slow. That is
            // no attack, to be answered by closing the connection and all other calls on it.
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEADERS)
            // Nobody reads the date of an answer to a proxy.
            .auto_date_header(false);
        Self {
            http2,
            tls,
            handshake_timeout,
            patience: settings.keepalive_timeout,
            max_age: settings.max_connection_age,
            grace: settings.max_connection_age_grace,
            draining,
        }
    }

    /// Serves a connection from its first byte to its last.
    pub(crate) async fn serve<I, T>(self, io: I, services: Dispatch<T>)
    where
        I: AsyncRead + AsyncWrite + Unpin,
        T: RateLimitService,
    {
        let Some(tls) = &self.tls else { return self.speak(io, services).await };
        // Also while draining: whoever connected before is served, as in the clear.
        if let Some(stream) = tls.accept(io, self.handshake_timeout).await {
            Box::pin(self.speak(stream, services)).await;
        }
    }

    async fn speak<I, T>(&self, io: I, services: Dispatch<T>)
    where
        I: AsyncRead + AsyncWrite + Unpin,
        T: RateLimitService,
    {
        let io = Guarded::new(io, self.patience).opened_within(self.handshake_timeout);
        let uptake = Uptake::default();
        let services = services.for_connection(uptake.clone());
        let mut connection = pin!(self.http2.serve_connection(TokioIo::new(io), services));
        let mut stopped = pin!(uptake.stopped(self.patience));
        select! {
            biased;
            ended = connection.as_mut() => return log(ended),
            () = stopped.as_mut() => return given_up(),
            () = self.draining.cancelled() => {}
            () = after(self.max_age.map(lengthened)) => {}
        }
        // GOAWAY: the client opens another connection for its next calls.
        connection.as_mut().graceful_shutdown();
        select! {
            biased;
            ended = connection => log(ended),
            () = stopped => given_up(),
            () = after(self.grace) => tracing::debug!("closed a connection whose calls did not end in time"),
        }
    }
}

fn given_up() {
    tracing::debug!("closed a connection whose client gives no room for its answers");
}

fn log(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!("a connection broke: {error}");
    }
}

async fn after(duration: Option<Duration>) {
    match duration {
        Some(duration) => sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// `age` ± 10 %, so that connections that began together do not end together.
fn lengthened(age: Duration) -> Duration {
    // Every `RandomState` has keys of its own.
    let random = RandomState::new().build_hasher().finish();
    let percent = (random % 21).saturating_add(90);
    let hundredth = age.checked_div(100).unwrap_or(age);
    hundredth.saturating_mul(u32::try_from(percent).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_differ_by_at_most_a_tenth() {
        let age = Duration::from_secs(100);
        let ages: Vec<_> = (0..200).map(|_| lengthened(age)).collect();
        assert!(ages.iter().all(|age| (90..=110).contains(&age.as_secs())));
        assert!(ages.iter().any(|other| *other != ages[0]));
    }
}
