//! TLS with certificates that are reloaded at run time.

mod files;
mod names;
mod reload;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tollgate_core::clock::Clock;

pub use self::files::TlsError;
use self::{files::TlsFiles, reload::Reloader};
use crate::{
    net::metrics::{self, Handshake},
    settings::{Port, TlsSettings},
};

/// TLS of a port. Clones share the active certificate.
#[derive(Clone)]
pub(crate) struct Tls {
    port: Port,
    current: Arc<ArcSwap<ServerConfig>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("port", &self.port).finish_non_exhaustive()
    }
}

/// Application protocol, negotiated by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2
    Http2,
}

impl Protocol {
    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http1 => vec![b"http/1.1".to_vec()],
            Self::Http2 => vec![b"h2".to_vec()],
        }
    }
}

/// Client with a certificate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsClient {
    /// Of Redis.
    Redis,
    /// Of a control plane.
    Xds,
    /// Of other regions.
    Region,
}

impl TlsClient {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Xds => "xds",
            Self::Region => "region",
        }
    }

    /// Records the certificates of a PEM file that this client presents from now on.
    pub(crate) fn presents(self, pem: &[u8]) {
        if let Some(expiry) = files::first_expiry(pem) {
            metrics::client_certificate(self, expiry);
        }
    }
}

/// The time, in seconds since the Unix epoch.
fn now_seconds() -> i64 {
    i64::try_from(Clock::System.now().as_micros() / 1_000_000).unwrap_or(i64::MAX)
}

impl Tls {
    /// Reads the files. Also returns a future that reloads them on change and completes only after a panic.
    ///
    /// # Errors
    /// When a file is unreadable or invalid.
    pub(crate) fn load(
        settings: TlsSettings,
        protocol: Protocol,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), TlsError> {
        let files = TlsFiles::read(&settings);
        let config = files.config(&settings, protocol)?;
        metrics::tls_in_use(settings.port.name(), files.expiry());
        if let Err(error) = files.check_validity(&settings, now_seconds()) {
            tracing::warn!(%error, "TLS certificate not valid at this time");
        }
        let current = Arc::new(ArcSwap::new(config));
        let tls = Self { port: settings.port, current: Arc::clone(&current) };
        let reloader = Reloader::new(settings, protocol, files.fingerprint(), current);
        Ok((tls, reloader.run()))
    }

    /// Performs the handshake within `limit`. A connection that fails it is counted and closed.
    ///
    /// The number of concurrent handshakes is not limited: a slow client would keep others out. A handshake takes about a
    /// millisecond of CPU time, in between which the runtime serves other connections.
    pub(crate) async fn accept<I>(&self, io: I, limit: Duration) -> Option<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.current.load_full());
        let (stream, outcome) = match timeout(limit, Box::pin(acceptor.accept(io))).await {
            Ok(Ok(stream)) => (Some(stream), Handshake::Done),
            Ok(Err(error)) => {
                tracing::debug!(port = %self.port, %error, "TLS handshake failed");
                (None, Handshake::Refused)
            }
            Err(_) => (None, Handshake::TimedOut),
        };
        metrics::handshake(self.port.name(), outcome);
        stream
    }
}
