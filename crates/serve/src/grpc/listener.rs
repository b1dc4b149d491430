//! Listener of the gRPC port or Unix socket, its connections, and their assignment to workers.

use std::os::unix::{fs::FileTypeExt as _, net::UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{collections::BTreeMap, io, net::TcpStream as StdTcpStream, time::Instant};

use futures_util::FutureExt as _;
use rustix::io::ioctl_fionread;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::{either::Either, sync::CancellationToken};

use crate::grpc::GrpcListen;
use crate::grpc::responses::{StallDetector, nanos_of};
use crate::net::accept::{self, AcceptLimit};
use crate::net::{Port, metrics::GRPC_CONNECTIONS, read_budget::Unread};

/// Connections beyond the maximum, and beyond a quarter of it, that may be about to close for others.
const MAX_CLOSING: usize = 64;

/// gRPC port or Unix socket.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// File of a Unix socket, removed on drop.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // An error means that the file was removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Starts listening. Replaces a socket file left by an earlier process.
    pub async fn bind(listen: &GrpcListen) -> io::Result<Self> {
        match listen {
            GrpcListen::Tcp(address) => accept::listen(*address).await.map(Self::Tcp),
            GrpcListen::Unix(path) => {
                remove_stale(path)?;
                Ok(Self::Unix(UnixListener::bind(path)?, SocketFile(path.clone())))
            }
        }
    }

    /// Listening address, with the port that was assigned.
    pub fn address(&self) -> io::Result<GrpcListen> {
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
    pub async fn run(self, mut workers: Balancer<Accepted>, max_connections: usize, stop: CancellationToken) {
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
                    let evict = || live < bound && workers.calls.close_longest_idle();
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
pub enum Accepted {
    Tcp(StdTcpStream),
    Unix(StdUnixStream),
}

impl Accepted {
    /// Registers the connection with the current runtime.
    pub fn register(self) -> io::Result<Io> {
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
pub type Io = Either<TcpStream, UnixStream>;

impl Unread for Io {
    fn unread_bytes(&self) -> u64 {
        let unread = match self {
            Self::Left(stream) => ioctl_fionread(stream),
            Self::Right(stream) => ioctl_fionread(stream),
        };
        unread.unwrap_or(0)
    }
}

/// Entries of connections that have ended which may be kept, beside one for each live connection.
const ENDED_ENTRIES: usize = 1_024;

/// Connections that are looked at for the longest idle one: twice all at the default maximum, whose times may not be up to date.
const MAX_LOOKS: usize = 20_000;

/// Assigns each connection to the worker with the fewest.
///
/// A client has few, long-lived connections that carry all its calls, so they must not pile up on one worker, as they do
/// when workers compete for them.
#[derive(Debug)]
pub struct Balancer<C> {
    workers: Vec<Worker<C>>,
    /// Start of the search, so that equally loaded workers alternate.
    next: usize,
    calls: LatestCalls,
}

/// Connections by the time of their latest call, in nanoseconds, as it was when they were last looked at, and by number. Calls do
/// not update it.
#[derive(Debug, Default)]
struct LatestCalls {
    next: u64,
    connections: BTreeMap<(u64, u64), StallDetector>,
    /// Evicted connections, which end soon.
    evicted: Vec<StallDetector>,
}

impl LatestCalls {
    fn add(&mut self, called_at: u64, connection: StallDetector) {
        self.next = self.next.wrapping_add(1);
        self.connections.insert((called_at, self.next), connection);
    }

    /// Closes the longest idle connection; whether there was one.
    fn close_longest_idle(&mut self) -> bool {
        let now = nanos_of(Instant::now());
        for _ in 0..MAX_LOOKS {
            // Connections that are busy now come last.
            let Some(oldest) = self.connections.first_entry().filter(|oldest| oldest.key().0 < now) else {
                break;
            };
            let ((known, _), connection) = oldest.remove_entry();
            match connection.called_at() {
                _ if connection.has_ended() => {}
                _ if connection.is_busy(now) => self.add(now, connection),
                called_at if called_at > known => self.add(called_at, connection),
                _ => {
                    connection.evict();
                    self.evicted.push(connection);
                    return true;
                }
            }
        }
        false
    }
}

#[derive(Debug)]
struct Worker<C> {
    live: Arc<AtomicUsize>,
    connections: UnboundedSender<(C, ConnectionPermit)>,
}

/// Permit of a connection, counted at its worker until dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    live: Arc<AtomicUsize>,
    /// Calls of the connection.
    pub detector: StallDetector,
}

impl ConnectionPermit {
    fn acquire(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        GRPC_CONNECTIONS.add(1.0);
        Self { live: Arc::clone(live), detector: StallDetector::default() }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        GRPC_CONNECTIONS.add(-1.0);
    }
}

impl<C> Default for Balancer<C> {
    fn default() -> Self {
        Self { workers: Vec::new(), next: 0, calls: LatestCalls::default() }
    }
}

impl<C> Balancer<C> {
    /// Number of open connections that were closed for others.
    fn closing(&mut self) -> usize {
        self.calls.evicted.retain(|connection| !connection.has_ended());
        self.calls.evicted.len()
    }

    /// Adds a worker and returns the receiver of its connections, which closes when the balancer is dropped.
    pub fn add_worker(&mut self) -> UnboundedReceiver<(C, ConnectionPermit)> {
        let (connections, received) = unbounded_channel();
        self.workers.push(Worker { live: Arc::default(), connections });
        received
    }

    /// Number of open connections of all workers.
    pub fn live(&self) -> usize {
        self.workers.iter().map(|worker| worker.live.load(Ordering::Relaxed)).sum()
    }

    /// Assigns `connection` to a worker; a worker that has ended drops it.
    fn assign(&mut self, connection: C) {
        let (before, from) = self.workers.split_at_checked(self.next).unwrap_or((&[], &self.workers));
        let candidates = from.iter().chain(before).zip(0_usize..);
        let fewest = candidates.min_by_key(|(worker, _)| worker.live.load(Ordering::Relaxed));
        let Some((worker, skipped)) = fewest else { return };
        // The process stops when a worker ends, so no other worker has to take over the connection.
        let permit = ConnectionPermit::acquire(&worker.live);
        self.calls.add(nanos_of(Instant::now()), permit.detector.clone());
        let _ = worker.connections.send((connection, permit));
        self.next = (self.next + skipped + 1) % self.workers.len();
        if self.calls.connections.len() > self.live() * 2 + ENDED_ENTRIES {
            self.calls.connections.retain(|_, connection| !connection.has_ended());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as StdUnixListener;

    use super::*;
    use tollgate_fixtures::temporary_file;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_removed_on_drop() {
        let (_directory, path) = temporary_file("grpc.sock");
        // Dropping it leaves the file.
        drop(StdUnixListener::bind(&path).expect("bound"));
        let listener = Listener::bind(&GrpcListen::Unix(path.clone())).await.expect("replaced");
        assert!(StdUnixStream::connect(&path).is_ok());
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_in_use_and_a_regular_file_are_kept() {
        let (_directory, path) = temporary_file("grpc.sock");
        let _other = StdUnixListener::bind(&path).expect("bound");
        let error = Listener::bind(&GrpcListen::Unix(path.clone())).await.expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let file = path.with_file_name("file");
        std::fs::write(&file, "text").expect("written");
        let error = Listener::bind(&GrpcListen::Unix(file.clone())).await.expect_err("not a socket");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(path.exists() && file.exists());
    }

    fn received(worker: &mut UnboundedReceiver<(u32, ConnectionPermit)>) -> Vec<(u32, ConnectionPermit)> {
        std::iter::from_fn(|| worker.try_recv().ok()).collect()
    }

    #[test]
    fn equally_loaded_workers_alternate() {
        let mut balancer = Balancer::default();
        let mut workers: Vec<_> = (0..3).map(|_| balancer.add_worker()).collect();
        (0..9).for_each(|connection| balancer.assign(connection));
        for (at, worker) in workers.iter_mut().enumerate() {
            let got: Vec<usize> =
                received(worker).iter().map(|(connection, _)| *connection as usize).collect();
            assert_eq!(got, [at, at + 3, at + 6]);
        }
    }

    #[test]
    fn the_worker_whose_connections_closed_gets_the_next_ones() {
        let mut balancer = Balancer::default();
        let mut workers = [balancer.add_worker(), balancer.add_worker()];
        (0..6).for_each(|connection| balancer.assign(connection));
        let kept = received(&mut workers[0]);
        drop(received(&mut workers[1]));
        (6..9).for_each(|connection| balancer.assign(connection));
        assert_eq!(received(&mut workers[1]).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [6, 7, 8]);
        assert_eq!(kept.len(), 3);
    }

    #[test]
    fn a_connection_without_a_worker_is_dropped() {
        Balancer::default().assign(1);
        let mut balancer = Balancer::default();
        drop(balancer.add_worker());
        balancer.assign(1);
        assert_eq!(balancer.workers[0].live.load(Ordering::Relaxed), 0);
    }
}
