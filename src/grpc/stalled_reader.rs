//! Responses of a connection that its client has not read, and detection of clients that stop reading.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{select, sync::Notify, time::sleep};

use super::unread_leases::UnreadLeases;

/// Pending responses above which a connection slows others down: each new call on it is compared with all of them.
const MANY_PENDING: usize = 128;

/// Timeout while many responses are pending. Their callers have long timed out.
const MANY_PENDING_TIMEOUT: Duration = Duration::from_secs(1);

/// Responses of one connection that wait for its client's flow-control windows. HTTP/2 keepalive and the write timeout of
/// the socket do not detect this: a client may acknowledge every PING and never open a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct StallDetector(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    pending: AtomicUsize,
    written: AtomicUsize,
    /// Notified when many responses become pending.
    many_pending: Notify,
    leases: UnreadLeases,
}

/// A response waiting to be written; dropped once it is.
#[derive(Debug)]
pub(crate) struct PendingResponse(Arc<Counts>);

impl StallDetector {
    /// Counts a response as pending.
    pub(super) fn track(&self) -> PendingResponse {
        if self.0.pending.fetch_add(1, Ordering::Relaxed) == MANY_PENDING {
            self.0.many_pending.notify_one();
        }
        PendingResponse(Arc::clone(&self.0))
    }

    /// Leases of the connection's recent responses.
    pub(super) fn leases(&self) -> &UnreadLeases {
        &self.0.leases
    }

    /// Completes once responses have been pending for `stall_timeout` to twice that without one being written, or for a
    /// second or two if many are.
    pub(super) async fn stalled(&self, stall_timeout: Duration) {
        loop {
            let before = self.0.written.load(Ordering::Relaxed);
            let pending = self.0.pending.load(Ordering::Relaxed);
            let timeout =
                if pending > MANY_PENDING { stall_timeout.min(MANY_PENDING_TIMEOUT) } else { stall_timeout };
            select! {
                () = sleep(timeout) => {}
                // The shorter timeout applies from now on.
                () = self.0.many_pending.notified() => continue,
            }
            if pending > 0 && before == self.0.written.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl PendingResponse {
    /// Leases of the connection's recent responses.
    pub(super) fn leases(&self) -> &UnreadLeases {
        &self.0.leases
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.0.written.fetch_add(1, Ordering::Relaxed);
        self.0.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SHORT_TIMEOUT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_reader_is_stalled_when_responses_are_pending_and_none_is_written() {
        let detector = StallDetector::default();
        let mut pending = Vec::new();
        let busy = async {
            // One of several is written now and then.
            for _ in 0..20 {
                pending.push(detector.track());
                pending.push(detector.track());
                sleep(SHORT_TIMEOUT / 2).await;
                drop(pending.remove(0));
            }
        };
        tokio::select! {
            () = detector.stalled(SHORT_TIMEOUT * 50) => panic!("the reader makes progress"),
            () = busy => {}
        }
        timeout(Duration::from_secs(20), detector.stalled(SHORT_TIMEOUT)).await.expect("stalled");
        let hour = detector.stalled(Duration::from_secs(3_600));
        pending.extend((0..=MANY_PENDING).map(|_| detector.track()));
        timeout(Duration::from_secs(20), hour).await.expect("stalled long before");
        pending.clear();
        assert!(timeout(SHORT_TIMEOUT * 5, detector.stalled(SHORT_TIMEOUT)).await.is_err(), "none pending");
    }
}
