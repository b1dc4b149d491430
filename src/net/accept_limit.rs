//! Connection limit of a port, and accept failures: one log line for each change, not for each connection.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{net::metrics, settings::Port};

/// Delay before the next accept after one failed.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time without a failure after which accepting counts as recovered: single file descriptors are freed all the time.
const RECOVERY_PERIOD: Duration = Duration::from_secs(1);

/// Bounds a port's connections and logs changes of its state.
#[derive(Debug)]
pub(crate) struct AcceptLimit {
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
    pub(crate) const fn new(port: Port, max_connections: usize) -> Self {
        Self { port, max_connections, state: AcceptState::Accepting }
    }

    /// Whether a connection is admitted beside the `live` ones. The caller closes one that is not.
    pub(crate) fn admits(&mut self, live: usize) -> bool {
        self.admits_evicting(live, || false)
    }

    /// Like [`Self::admits`]. At the limit, `evict` closes another connection for this one, and returns whether there was
    /// one to close.
    pub(crate) fn admits_evicting(&mut self, live: usize, evict: impl FnOnce() -> bool) -> bool {
        if live >= self.max_connections {
            let has_evicted = evict();
            metrics::connection_limit_reached(self.port.name(), has_evicted);
            if self.state != AcceptState::Full {
                self.state = AcceptState::Full;
                let closing = if has_evicted { "idle" } else { "new" };
                tracing::warn!(port = %self.port, live, closing, "connection limit reached; closing connections");
            }
            return has_evicted;
        }
        // Not with the first free slot, which may be taken again immediately.
        let has_room = live <= self.max_connections.saturating_sub(self.max_connections.div_ceil(10));
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
    pub(crate) async fn accept_failed(&mut self, error: &io::Error, evict: impl FnOnce() -> bool) -> bool {
        // The client closed the connection; others are not affected.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return false;
        }
        let before = std::mem::replace(&mut self.state, AcceptState::Failing(Instant::now()));
        if !matches!(before, AcceptState::Failing(_)) {
            tracing::warn!(port = %self.port, %error, "cannot accept connections");
        }
        let has_evicted = evict();
        match has_evicted {
            true => metrics::connection_evicted(self.port.name()),
            // It does not change within microseconds.
            false => sleep(RETRY_DELAY).await,
        }
        has_evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
