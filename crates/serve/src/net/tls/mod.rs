//! TLS with certificates that are reloaded at run time.

mod files;
mod reload;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use self::files::TlsFiles;
use self::reload::{Reloader, now_seconds};
use super::metrics;

pub use self::files::TlsError;
pub use crate::net::{Port, TlsSettings};

/// TLS of a port. Clones share the active certificate.
#[derive(Clone)]
pub struct Tls {
    port: Port,
    current: Arc<ArcSwap<ServerConfig>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("port", &self.port).finish_non_exhaustive()
    }
}

/// Records the certificates of a PEM file that a client of this name in metrics presents from now on: `redis`, `xds` or
/// `region`.
pub fn client_presents(client: &'static str, pem: &[u8]) {
    if let Some(expiry) = files::first_expiry(pem) {
        // Exact up to 2^53.
        metrics::CLIENT_CERTIFICATE_EXPIRY.set([client], expiry as f64);
    }
}

impl Tls {
    /// Reads the files. Also returns a future that reloads them on change and completes only after a panic.
    ///
    /// # Errors
    /// When a file is unreadable or invalid.
    pub fn load(
        settings: TlsSettings,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), TlsError> {
        let files = TlsFiles::read(&settings);
        let config = files.config(&settings)?;
        metrics::tls_in_use(settings.port.name(), files.expiry());
        if let Err(error) = files.check_validity(&settings, now_seconds()) {
            tracing::warn!(%error, "TLS certificate not valid at this time");
        }
        let current = Arc::new(ArcSwap::new(config));
        let tls = Self { port: settings.port, current: Arc::clone(&current) };
        let seen = files.fingerprint();
        Ok((tls, Reloader::new(settings, seen, current).run()))
    }

    /// Performs the handshake within `limit`. A connection that fails it is counted and closed.
    ///
    /// The number of concurrent handshakes is not limited: a slow client would keep others out. A handshake takes about a
    /// millisecond of CPU time, in between which the runtime serves other connections.
    pub async fn accept<I>(&self, io: I, limit: Duration) -> Option<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.current.load_full());
        let (stream, outcome) = match timeout(limit, Box::pin(acceptor.accept(io))).await {
            Ok(Ok(stream)) => (Some(stream), "success"),
            Ok(Err(error)) => {
                tracing::debug!(port = %self.port, %error, "TLS handshake failed");
                (None, "refused")
            }
            Err(_) => (None, "timeout"),
        };
        metrics::TLS_HANDSHAKES.increment([self.port.name(), outcome]);
        stream
    }
}
