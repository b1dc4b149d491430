//! Connections whose client is waited for, in the order in which that began: for a handshake, a request, the rest of one, or the
//! reading of the response.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Idle connections of a port: those that wait for their client.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections(Mutex<IdleOrder>);

#[derive(Debug, Default)]
struct IdleOrder {
    /// The latest place, from 1.
    latest: u64,
    /// The longest idle connection is first.
    connections: BTreeMap<u64, CancellationToken>,
}

impl IdleConnections {
    /// Closes the longest idle connection; whether there was one.
    pub(crate) fn close_longest(&self) -> bool {
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
pub(crate) struct ConnectionActivity {
    idle: Arc<IdleConnections>,
    /// Its place in the order while it is idle; 0 at first.
    place: Mutex<u64>,
    close: CancellationToken,
}

impl ConnectionActivity {
    /// A new connection, which is idle.
    pub(crate) fn new(idle: &Arc<IdleConnections>) -> Arc<Self> {
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
    pub(crate) fn begin_request(self: &Arc<Self>) -> Option<RequestInProgress> {
        self.become_idle().then(|| RequestInProgress(Arc::clone(self)))
    }

    /// Completes when the connection is closed for another one.
    pub(crate) async fn closed(&self) {
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
pub(crate) struct RequestInProgress(Arc<ConnectionActivity>);

impl RequestInProgress {
    /// Makes the connection busy: the request has arrived in full.
    pub(crate) fn received(&self) {
        self.0.idle.0.lock().connections.remove(&*self.0.place.lock());
    }

    /// Makes the connection idle: its client has to read the response.
    pub(crate) fn answered(&self) {
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
