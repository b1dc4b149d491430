//! TLS whose certificates change while it is used.

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

pub use self::files::TlsError;
use self::{files::Version, reload::Follower};
use crate::{
    metrics::{self, Handshake},
    settings::{Port, TlsSettings},
};

/// The TLS of a port. Clones share the certificate in use.
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

/// What is spoken inside.
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

impl Tls {
    /// Reads the files; what is returned besides follows their changes, and ends only by a panic.
    ///
    /// # Errors
    /// When they cannot be used as they are.
    pub(crate) fn load(
        settings: TlsSettings,
        protocol: Protocol,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), TlsError> {
        let version = Version::read(&settings);
        let config = version.config(&settings, protocol)?;
        metrics::tls_in_use(settings.port.name(), version.expiry());
        let current = Arc::new(ArcSwap::new(config));
        let tls = Self { port: settings.port, current: Arc::clone(&current) };
        let follower = Follower { settings, protocol, seen: version.fingerprint(), suspect: None, current };
        Ok((tls, follower.follow()))
    }

    /// Shakes hands within `limit`. A connection that comes to nothing is counted and closed.
    ///
    /// There are no turns to take: a client can make a handshake last, and would keep others out. One takes about a
    /// millisecond of processor time, in between which the runtime serves other connections.
    pub(crate) async fn accept<I>(&self, io: I, limit: Duration) -> Option<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.current.load_full());
        let (stream, outcome) = match timeout(limit, Box::pin(acceptor.accept(io))).await {
            Ok(Ok(stream)) => (Some(stream), Handshake::Done),
            Ok(Err(error)) => {
                tracing::debug!("a handshake on the {} port failed: {error}", self.port);
                (None, Handshake::Refused)
            }
            Err(_) => (None, Handshake::TimedOut),
        };
        metrics::handshake(self.port.name(), outcome);
        stream
    }
}
