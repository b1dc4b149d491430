//! Listener of the gRPC port or Unix socket, and its connections.

use std::{
    io,
    net::TcpStream as StdTcpStream,
    os::unix::{fs::FileTypeExt as _, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
};

use futures_util::FutureExt as _;
use rustix::io::ioctl_fionread;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    select,
};
use tokio_util::{either::Either, sync::CancellationToken};

use super::balance::Balancer;
use crate::{
    net::{
        accept::{self, AcceptLimit},
        read_budget::Unread,
    },
    settings::{GrpcListen, Port},
};

/// Connections beyond the maximum, and beyond a quarter of it, that may be about to close for others.
const MAX_CLOSING: usize = 64;

/// gRPC port or Unix socket.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// File of a Unix socket, removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // An error means that the file was removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Starts listening. Replaces a socket file left by an earlier process.
    pub(super) async fn bind(listen: &GrpcListen) -> io::Result<Self> {
        match listen {
            GrpcListen::Tcp(address) => accept::listen(*address).await.map(Self::Tcp),
            GrpcListen::Unix(path) => {
                remove_stale(path)?;
                Ok(Self::Unix(UnixListener::bind(path)?, SocketFile(path.clone())))
            }
        }
    }

    /// Listening address, with the port that was assigned.
    pub(super) fn address(&self) -> io::Result<GrpcListen> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(GrpcListen::Tcp),
            Self::Unix(_, file) => Ok(GrpcListen::Unix(file.0.clone())),
        }
    }

    /// Accepts a connection, detached from this runtime.
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().await?.0.into_std().map(Accepted::Tcp),
            Self::Unix(listener, _) => listener.accept().await?.0.into_std().map(Accepted::Unix),
        }
    }

    /// Assigns connections to the workers until `stop` is cancelled; then closes the port and the workers' receivers.
    /// Connections established by then are still served. Above `max_connections`, each takes the place of the longest idle one,
    /// or is closed.
    pub(super) async fn run(
        self,
        mut workers: Balancer<Accepted>,
        max_connections: usize,
        stop: CancellationToken,
    ) {
        let mut limit = AcceptLimit::new(Port::Grpc, max_connections);
        let max_closing = max_connections / 4 + MAX_CLOSING;
        let bound = max_connections.saturating_add(max_closing);
        loop {
            let accepted = select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(connection) => {
                    let live = workers.live();
                    let closing = if live < bound { workers.closing() } else { 0 };
                    let evict = || live < bound && workers.close_longest_idle();
                    if limit.admits_evicting(live.saturating_sub(closing), evict) {
                        workers.assign(connection);
                    }
                }
                Err(error) => _ = limit.accept_failed(&error, || false).await,
            }
        }
        while let Some(Ok(connection)) = self.accept().now_or_never() {
            if limit.admits(workers.live()) {
                workers.assign(connection);
            }
        }
    }
}

/// Removes the socket at `path` if no process accepts connections on it.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match std::fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file exists and is not a socket"));
    }
    match StdUnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on the socket")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// Accepted connection, not registered with a runtime yet.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(StdTcpStream),
    Unix(StdUnixStream),
}

impl Accepted {
    /// Registers the connection with the current runtime.
    pub(super) fn register(self) -> io::Result<Io> {
        Ok(match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                Io::Left(TcpStream::from_std(stream)?)
            }
            Self::Unix(stream) => Io::Right(UnixStream::from_std(stream)?),
        })
    }
}

/// Connection registered with its worker's runtime.
pub(super) type Io = Either<TcpStream, UnixStream>;

impl Unread for Io {
    fn unread_bytes(&self) -> u64 {
        let unread = match self {
            Self::Left(stream) => ioctl_fionread(stream),
            Self::Right(stream) => ioctl_fionread(stream),
        };
        unread.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as StdUnixListener;

    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_removed_on_drop() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("grpc.sock");
        // Dropping it leaves the file.
        drop(StdUnixListener::bind(&path).expect("bound"));
        let listener = Listener::bind(&GrpcListen::Unix(path.clone())).await.expect("replaced");
        assert!(StdUnixStream::connect(&path).is_ok());
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_in_use_and_a_regular_file_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("grpc.sock");
        let _other = StdUnixListener::bind(&path).expect("bound");
        let error = Listener::bind(&GrpcListen::Unix(path.clone())).await.expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let file = directory.path().join("file");
        std::fs::write(&file, "text").expect("written");
        let error = Listener::bind(&GrpcListen::Unix(file.clone())).await.expect_err("not a socket");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(path.exists() && file.exists());
    }
}
