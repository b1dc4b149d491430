//! Opening of TCP ports, and bounds of their connections: a maximum, above which the longest idle one makes room.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, io, sync::Arc};

use parking_lot::Mutex;
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use super::metrics::{CONNECTIONS_EVICTED, CONNECTIONS_REFUSED};
use crate::net::Port;

/// Listens on an address. On a machine without IPv6, `[::]` falls back to `0.0.0.0`: operators write `[::]` for "all
/// addresses" on either kind of machine.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) => match ipv4_fallback(address, error.kind()) {
            Some(fallback) => {
                let listener = TcpListener::bind(fallback).await.map_err(|_| error)?;
                tracing::info!(%address, %fallback, "no IPv6; listening on IPv4");
                Ok(listener)
            }
            None => Err(error),
        },
        listener => listener,
    }
}

/// Address to try after binding `address` failed.
fn ipv4_fallback(address: SocketAddr, error: io::ErrorKind) -> Option<SocketAddr> {
    let is_taken = matches!(error, io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied);
    let is_any = address.is_ipv6() && address.ip().is_unspecified();
    (is_any && !is_taken).then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
}

/// Delay before the next accept after one failed.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time without a failure after which accepting counts as recovered: single file descriptors are freed all the time.
const RECOVERY_PERIOD: Duration = Duration::from_secs(1);

/// Bounds a port's connections and logs changes of its state.
#[derive(Debug)]
pub struct AcceptLimit {
    port: Port,
    max_connections: usize,
    state: AcceptState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptState {
    Accepting,
    Full,
    /// `accept` failed, last at this time.
    Failing(Instant),
}

impl AcceptLimit {
    pub const fn new(port: Port, max_connections: usize) -> Self {
        Self { port, max_connections, state: AcceptState::Accepting }
    }

    /// Whether a connection is admitted beside the `live` ones. The caller closes one that is not.
    pub fn admits(&mut self, live: usize) -> bool {
        self.admits_evicting(live, || false)
    }

    /// Like [`Self::admits`]. At the limit, `evict` closes another connection for this one, and returns whether there was
    /// one to close.
    pub fn admits_evicting(&mut self, live: usize, evict: impl FnOnce() -> bool) -> bool {
        if live >= self.max_connections {
            let has_evicted = evict();
            let closed = if has_evicted { &CONNECTIONS_EVICTED } else { &CONNECTIONS_REFUSED };
            closed.increment([self.port.name()]);
            if self.state != AcceptState::Full {
                self.state = AcceptState::Full;
                let closing = if has_evicted { "idle" } else { "new" };
                tracing::warn!(port = %self.port, live, closing, "connection limit reached; closing connections");
            }
            return has_evicted;
        }
        // Not with the first free slot, which may be taken again immediately.
        let has_room = live <= self.max_connections - self.max_connections.div_ceil(10);
        let has_recovered = match self.state {
            AcceptState::Accepting => false,
            AcceptState::Full => has_room,
            AcceptState::Failing(last) => last.elapsed() > RECOVERY_PERIOD,
        };
        if has_recovered {
            self.state = AcceptState::Accepting;
            tracing::info!(port = %self.port, "accepting connections again");
        }
        true
    }

    /// Records that `accept` failed, most likely without a free file descriptor. `evict` closes a connection, and returns
    /// whether there was one to close, as does this; otherwise it waits before the next attempt.
    pub async fn accept_failed(&mut self, error: &io::Error, evict: impl FnOnce() -> bool) -> bool {
        // The client closed the connection; others are not affected.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return false;
        }
        let before = std::mem::replace(&mut self.state, AcceptState::Failing(Instant::now()));
        if !matches!(before, AcceptState::Failing(_)) {
            tracing::warn!(port = %self.port, %error, "cannot accept connections");
        }
        let has_evicted = evict();
        if has_evicted {
            CONNECTIONS_EVICTED.increment([self.port.name()]);
        } else {
            // It does not change within microseconds.
            sleep(RETRY_DELAY).await;
        }
        has_evicted
    }
}

/// Idle connections of a port: those that wait for their client.
#[derive(Debug, Default)]
pub struct IdleConnections(Mutex<IdleOrder>);

#[derive(Debug, Default)]
struct IdleOrder {
    /// The latest place, from 1.
    latest: u64,
    /// The longest idle connection is first.
    connections: BTreeMap<u64, CancellationToken>,
}

impl IdleConnections {
    /// Closes the longest idle connection; whether there was one.
    pub fn close_longest(&self) -> bool {
        let mut order = self.0.lock();
        let longest = order.connections.pop_first();
        // Under the lock, so that no request begins on it.
        longest.is_some_and(|(_, close)| {
            close.cancel();
            true
        })
    }
}

/// Whether a connection is idle.
#[derive(Debug)]
pub struct ConnectionActivity {
    idle: Arc<IdleConnections>,
    /// Its place in the order while it is idle; 0 at first.
    place: Mutex<u64>,
    close: CancellationToken,
}

impl ConnectionActivity {
    /// A new connection, which is idle.
    pub fn new(idle: &Arc<IdleConnections>) -> Arc<Self> {
        let close = CancellationToken::new();
        let activity = Self { idle: Arc::clone(idle), place: Mutex::default(), close };
        activity.become_idle();
        Arc::new(activity)
    }

    /// Takes the last place in the order. Returns whether the connection is open.
    fn become_idle(&self) -> bool {
        let order = &mut *self.idle.0.lock();
        let mut place = self.place.lock();
        order.connections.remove(&*place);
        let is_open = !self.close.is_cancelled();
        if is_open {
            order.latest = order.latest.wrapping_add(1);
            *place = order.latest;
            order.connections.insert(*place, self.close.clone());
        }
        is_open
    }

    /// Begins a request, for the rest of which the client is waited for; `None` if the connection was closed before.
    pub fn begin_request(self: &Arc<Self>) -> Option<RequestInProgress> {
        self.become_idle().then(|| RequestInProgress(Arc::clone(self)))
    }

    /// Completes when the connection is closed for another one.
    pub async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for ConnectionActivity {
    fn drop(&mut self) {
        self.idle.0.lock().connections.remove(self.place.get_mut());
    }
}

/// A request whose response is not complete yet.
#[derive(Debug)]
pub struct RequestInProgress(Arc<ConnectionActivity>);

impl RequestInProgress {
    /// Makes the connection busy: the request has arrived in full.
    pub fn received(&self) {
        self.0.idle.0.lock().connections.remove(&*self.0.place.lock());
    }

    /// Makes the connection idle: its client has to read the response.
    pub fn answered(&self) {
        self.0.become_idle();
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.become_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wildcard_address_falls_back_to_ipv4_without_ipv6() {
        let of = |text: &str, error| ipv4_fallback(text.parse().expect("an address"), error);
        let any = Some("0.0.0.0:80".parse().expect("an address"));
        assert_eq!(of("[::]:80", io::ErrorKind::AddrNotAvailable), any);
        assert_eq!(of("[::]:80", io::ErrorKind::Unsupported), any);
        assert_eq!(of("[::]:80", io::ErrorKind::AddrInUse), None);
        assert_eq!(of("[::]:80", io::ErrorKind::PermissionDenied), None);
        assert_eq!(of("[::1]:80", io::ErrorKind::AddrNotAvailable), None);
        assert_eq!(of("0.0.0.0:80", io::ErrorKind::AddrNotAvailable), None);
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error() {
        let first = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.expect("a free port");
        let address = first.local_addr().expect("listening");
        assert_eq!(listen(address).await.expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn connections_are_refused_at_the_limit_until_a_tenth_of_it_is_free() {
        let mut limit = AcceptLimit::new(Port::Grpc, 20);
        assert!(limit.admits(19));
        assert!(!limit.admits(20));
        assert_eq!(limit.state, AcceptState::Full);
        // Admitted, but perhaps the last one for now.
        assert!(limit.admits(19));
        assert_eq!(limit.state, AcceptState::Full);
        assert!(limit.admits(18));
        assert_eq!(limit.state, AcceptState::Accepting);
        assert!(!limit.accept_failed(&io::ErrorKind::ConnectionAborted.into(), || true).await);
        assert_eq!(limit.state, AcceptState::Accepting);
        assert!(!limit.accept_failed(&io::Error::other("no descriptors"), || false).await);
        assert!(limit.accept_failed(&io::Error::other("no descriptors"), || true).await);
        let AcceptState::Failing(last) = limit.state else { panic!("{limit:?}") };
        assert!(limit.admits(5));
        assert_eq!(limit.state, AcceptState::Failing(last), "may fail again");
        limit.state = AcceptState::Failing(last - RECOVERY_PERIOD * 2);
        assert!(limit.admits(5));
        assert_eq!(limit.state, AcceptState::Accepting);
        // At the limit, another connection may make room.
        assert!(limit.admits_evicting(20, || true));
        assert_eq!(limit.state, AcceptState::Full);
        assert!(!limit.admits_evicting(20, || false));
        assert!(limit.admits_evicting(5, || panic!("there is room")));
        // The smallest limit admits one.
        let mut limit = AcceptLimit::new(Port::Grpc, 1);
        assert!(limit.admits(0));
        assert!(!limit.admits(1));
    }

    #[test]
    fn the_longest_idle_connection_is_closed_and_a_busy_one_never() {
        let idle = Arc::<IdleConnections>::default();
        assert!(!idle.close_longest(), "no connection yet");
        let [first, second, third] = [(); 3].map(|()| ConnectionActivity::new(&idle));
        let is_closed = |connection: &ConnectionActivity| connection.close.is_cancelled();
        // The first had a request since; the second still has one.
        drop(first.begin_request().expect("open"));
        let request = second.begin_request().expect("open");
        request.received();
        assert!(idle.close_longest() && is_closed(&third));
        assert!(third.begin_request().is_none(), "closed");
        assert!(idle.close_longest() && is_closed(&first));
        assert!(!idle.close_longest() && !is_closed(&second));
        drop(request);
        let request = second.begin_request().expect("open");
        assert!(idle.close_longest() && is_closed(&second), "the rest of the request is waited for");
        assert!(!idle.close_longest(), "closed once");
        drop(request);
        drop(second);
        assert!(!idle.close_longest(), "all have ended");
    }
}
