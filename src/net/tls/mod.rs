//! TLS whose certificates change while it is used.

mod files;
mod follow;
mod names;

use std::{io, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::{ServerConfig, server::Acceptor};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

pub use self::files::TlsError;
use self::{files::Version, follow::Follower};
use crate::{
    metrics::{self, Handshake},
    settings::{Port, TlsSettings},
};

/// Handshakes of one acceptor that may be past the client's first message at the same time. Each takes about a
/// millisecond of processor time, which calls on other connections should not have to wait for in a row.
const AT_ONCE: usize = 64;

/// The TLS of a port. Clones share the certificate in use.
#[derive(Clone)]
pub(crate) struct Tls {
    port: Port,
    current: Arc<ArcSwap<ServerConfig>>,
    turns: Arc<Semaphore>,
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
        let current = Arc::new(ArcSwap::new(config));
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let tls = Self { port: settings.port, current: Arc::clone(&current), turns };
        let follower = Follower { settings, protocol, seen: version.fingerprint(), current };
        Ok((tls, follower.follow()))
    }

    /// The same certificates, with turns of its own: for each thread that accepts connections.
    pub(crate) fn for_thread(&self) -> Self {
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), ..self.clone() }
    }

    /// Shakes hands within `limit`. A connection that comes to nothing is counted and closed.
    pub(crate) async fn accept<I>(&self, io: I, limit: Duration) -> Option<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let (stream, outcome) = match timeout(limit, Box::pin(self.shake_hands(io))).await {
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

    async fn shake_hands<I>(&self, io: I) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        // A client that says nothing takes no turn.
        let begun = LazyConfigAcceptor::new(Acceptor::default(), io).await?;
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        begun.into_stream(self.current.load_full()).await
    }
}
