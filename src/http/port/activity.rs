//! Connections without a request in progress, in the order in which they became idle.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Idle connections of a port: those that wait for a TLS handshake, for their first request or for the next one.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Mutex<IdleOrder>);

#[derive(Debug, Default)]
struct IdleOrder {
    next: u64,
    /// The longest idle connection is first.
    connections: BTreeMap<u64, CancellationToken>,
}

impl IdleConnections {
    /// Closes the longest idle connection; whether there was one.
    pub(super) fn close_longest(&self) -> bool {
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
pub(super) struct ConnectionActivity {
    idle: Arc<IdleConnections>,
    /// Its place in the order, while it is idle.
    place: Mutex<u64>,
    close: CancellationToken,
}

impl ConnectionActivity {
    /// A new connection, which is idle.
    pub(super) fn new(idle: &Arc<IdleConnections>) -> Arc<Self> {
        let close = CancellationToken::new();
        let activity = Self { idle: Arc::clone(idle), place: Mutex::default(), close };
        activity.become_idle();
        Arc::new(activity)
    }

    fn become_idle(&self) {
        let mut order = self.idle.0.lock();
        let place = order.next;
        order.next = place.wrapping_add(1);
        *self.place.lock() = place;
        order.connections.insert(place, self.close.clone());
    }

    /// Makes the connection busy until the request is dropped; `None` if it was closed before.
    pub(super) fn begin_request(self: &Arc<Self>) -> Option<RequestInProgress> {
        let mut order = self.idle.0.lock();
        order.connections.remove(&*self.place.lock());
        (!self.close.is_cancelled()).then(|| RequestInProgress(Arc::clone(self)))
    }

    /// Completes when the connection is closed for another one.
    pub(super) async fn closed(&self) {
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
pub(super) struct RequestInProgress(Arc<ConnectionActivity>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.become_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_connection_is_closed_and_a_busy_one_never() {
        let idle = Arc::<IdleConnections>::default();
        assert!(!idle.close_longest(), "no connection yet");
        let [first, second, third] = [(); 3].map(|()| ConnectionActivity::new(&idle));
        let is_closed = |connection: &ConnectionActivity| connection.close.is_cancelled();
        // The first had a request since; the second still has one.
        drop(first.begin_request().expect("open"));
        let request = second.begin_request().expect("open");
        assert!(idle.close_longest() && is_closed(&third));
        assert!(third.begin_request().is_none(), "closed");
        assert!(idle.close_longest() && is_closed(&first));
        assert!(!idle.close_longest() && !is_closed(&second));
        drop(request);
        drop(second);
        assert!(!idle.close_longest(), "all have ended");
    }
}
