//! Calls and responses of a connection: detection of clients that stop reading, and of idle connections.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
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

/// Handles on an idle connection: of the order of connections, its permit, its dispatch and its task.
const IDLE_HANDLES: usize = 4;

/// Time from its beginning in which a call keeps its connection from being evicted.
const MAX_BUSY_NANOS: u64 = 1_000_000_000;

/// Beginning of the times of calls.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

#[derive(Debug, Default)]
struct Counts {
    /// Time of the latest call; 0 before the first.
    called_at: AtomicU64,
    /// Whether the connection is to close for another one.
    is_evicted: AtomicBool,
    pending: AtomicUsize,
    written: AtomicUsize,
    /// Notified when many responses become pending, or the connection is to close.
    changed: Notify,
    leases: UnreadLeases,
}

/// Reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Its client does not read responses.
    Stalled,
    /// Another one takes its place.
    Evicted,
}

/// A response waiting to be written; dropped once it is.
#[derive(Debug)]
pub(crate) struct PendingResponse(Arc<Counts>);

/// Nanoseconds since the start of the process.
pub(crate) fn nanos_of(time: Instant) -> u64 {
    u64::try_from(time.saturating_duration_since(*EPOCH).as_nanos()).unwrap_or(u64::MAX)
}

impl StallDetector {
    /// Notes that a call begins.
    pub(super) fn called(&self, now: Instant) {
        self.0.called_at.store(nanos_of(now), Ordering::Relaxed);
    }

    /// Time of the latest call, in nanoseconds since the start of the process; 0 before the first.
    pub(crate) fn called_at(&self) -> u64 {
        self.0.called_at.load(Ordering::Relaxed)
    }

    /// Whether a call, which has a handle too, is in progress: not one whose message has not arrived for long.
    pub(crate) fn is_busy(&self, now: u64) -> bool {
        let is_recent = now.saturating_sub(self.called_at()) < MAX_BUSY_NANOS;
        is_recent && Arc::strong_count(&self.0) > IDLE_HANDLES
    }

    /// Whether this is the only handle on a connection that has ended.
    pub(crate) fn has_ended(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Closes the connection for another one, after the calls that its client has begun.
    pub(crate) fn evict(&self) {
        self.0.is_evicted.store(true, Ordering::Relaxed);
        self.0.changed.notify_one();
    }

    /// Counts a response as pending.
    pub(super) fn track(&self) -> PendingResponse {
        if self.0.pending.fetch_add(1, Ordering::Relaxed) == MANY_PENDING {
            self.0.changed.notify_one();
        }
        PendingResponse(Arc::clone(&self.0))
    }

    /// Leases of the connection's recent responses.
    pub(super) fn leases(&self) -> &UnreadLeases {
        &self.0.leases
    }

    /// Completes once responses have been pending for `stall_timeout` to twice that without one being written, or for a
    /// second or two if many are; or, once, when the connection is evicted.
    pub(super) async fn stalled(&self, stall_timeout: Duration) -> CloseReason {
        loop {
            let before = self.0.written.load(Ordering::Relaxed);
            let pending = self.0.pending.load(Ordering::Relaxed);
            let timeout =
                if pending > MANY_PENDING { stall_timeout.min(MANY_PENDING_TIMEOUT) } else { stall_timeout };
            select! {
                () = sleep(timeout) => {}
                () = self.0.changed.notified() => {
                    if self.0.is_evicted.swap(false, Ordering::Relaxed) {
                        return CloseReason::Evicted;
                    }
                    // The shorter timeout applies from now on.
                    continue;
                }
            }
            if pending > 0 && before == self.0.written.load(Ordering::Relaxed) {
                return CloseReason::Stalled;
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
            _ = detector.stalled(SHORT_TIMEOUT * 50) => panic!("the reader makes progress"),
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
