//! Where connections come in.

use std::{
    io,
    os::unix::{fs::FileTypeExt as _, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
};

use futures_util::FutureExt as _;
use tokio::{
    net::{TcpListener, UnixListener},
    select,
};
use tokio_util::sync::CancellationToken;

use super::{balance::Balancer, io::Accepted};
use crate::{
    net::{accept_limit::Gate, bind},
    settings::{GrpcListen, Port},
};

/// The gRPC port, or socket.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket's file, removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // One that is gone already is as good as removed.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Begins to listen. A socket that an earlier process left behind is replaced.
    pub(super) async fn bind(listen: &GrpcListen) -> io::Result<Self> {
        match listen {
            GrpcListen::Tcp(address) => bind::listen(*address).await.map(Self::Tcp),
            GrpcListen::Unix(path) => {
                remove_stale(path)?;
                Ok(Self::Unix(UnixListener::bind(path)?, SocketFile(path.clone())))
            }
        }
    }

    /// Where it listens, with the port that was picked.
    pub(super) fn address(&self) -> io::Result<GrpcListen> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(GrpcListen::Tcp),
            Self::Unix(_, file) => Ok(GrpcListen::Unix(file.0.clone())),
        }
    }

    /// The next connection, free to move to another runtime.
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().await?.0.into_std().map(Accepted::Tcp),
            Self::Unix(listener, _) => listener.accept().await?.0.into_std().map(Accepted::Unix),
        }
    }

    /// Hands connections to the workers until `stop` is cancelled; then the port is closed, and the workers
    /// learn that there are no more to come. Whoever has connected by then is served. Beyond `max` connections,
    /// new ones are closed.
    pub(super) async fn run(self, mut workers: Balancer<Accepted>, max: usize, stop: CancellationToken) {
        let mut gate = Gate::new(Port::Grpc, max);
        loop {
            let accepted = select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(connection) if gate.admits(workers.live()) => workers.assign(connection),
                Ok(connection) => drop(connection),
                Err(error) => gate.failed(&error).await,
            }
        }
        while let Some(Ok(connection)) = self.accept().now_or_never() {
            if gate.admits(workers.live()) {
                workers.assign(connection);
            }
        }
    }
}

/// Removes the socket at `path` if no process answers on it.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match std::fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    match StdUnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as StdUnixListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_that_nobody_listens_on_is_replaced_and_removed_in_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("grpc.sock");
        // Dropping it leaves the file behind.
        drop(StdUnixListener::bind(&path).expect("bound"));
        let listener = Listener::bind(&GrpcListen::Unix(path.clone())).await.expect("replaced");
        assert!(StdUnixStream::connect(&path).is_ok());
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_in_use_and_a_file_of_another_kind_are_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("grpc.sock");
        let _other = StdUnixListener::bind(&path).expect("bound");
        let error = Listener::bind(&GrpcListen::Unix(path.clone())).await.expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let file = directory.path().join("file");
        std::fs::write(&file, "text").expect("written");
        let error = Listener::bind(&GrpcListen::Unix(file.clone())).await.expect_err("no socket");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(path.exists() && file.exists());
    }
}
