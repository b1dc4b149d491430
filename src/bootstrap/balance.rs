//! Assignment of connections to workers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    grpc::unread_responses::{StallDetector, nanos_of},
    net::metrics,
};

/// Entries of connections that have ended which may be kept, beside one for each live connection.
const ENDED_ENTRIES: usize = 1_024;

/// Connections that are looked at for the longest idle one: twice all at the default maximum, whose times may not be up to date.
const MAX_LOOKS: usize = 20_000;

/// Assigns each connection to the worker with the fewest.
///
/// A client has few, long-lived connections that carry all its calls, so they must not pile up on one worker, as they do
/// when workers compete for them.
#[derive(Debug)]
pub(super) struct Balancer<C> {
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
pub(super) struct ConnectionPermit {
    live: Arc<AtomicUsize>,
    detector: StallDetector,
}

impl ConnectionPermit {
    fn acquire(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        metrics::connection_opened();
        Self { live: Arc::clone(live), detector: StallDetector::default() }
    }

    /// Calls of the connection.
    pub(super) const fn detector(&self) -> &StallDetector {
        &self.detector
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        metrics::connection_closed();
    }
}

impl<C> Balancer<C> {
    pub(super) fn new() -> Self {
        Self { workers: Vec::new(), next: 0, calls: LatestCalls::default() }
    }

    /// Closes the connection without a call for the longest time, unless all have one; whether there was one.
    pub(super) fn close_longest_idle(&mut self) -> bool {
        self.calls.close_longest_idle()
    }

    /// Number of open connections that were closed for others.
    pub(super) fn closing(&mut self) -> usize {
        self.calls.evicted.retain(|connection| !connection.has_ended());
        self.calls.evicted.len()
    }

    /// Adds a worker and returns the receiver of its connections, which closes when the balancer is dropped.
    pub(super) fn add_worker(&mut self) -> UnboundedReceiver<(C, ConnectionPermit)> {
        let (connections, received) = unbounded_channel();
        self.workers.push(Worker { live: Arc::default(), connections });
        received
    }

    /// Number of open connections of all workers.
    pub(super) fn live(&self) -> usize {
        self.workers.iter().map(|worker| worker.live.load(Ordering::Relaxed)).sum()
    }

    /// Assigns `connection` to a worker; a worker that has ended drops it.
    pub(super) fn assign(&mut self, connection: C) {
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
    use super::*;

    fn received(worker: &mut UnboundedReceiver<(u32, ConnectionPermit)>) -> Vec<(u32, ConnectionPermit)> {
        std::iter::from_fn(|| worker.try_recv().ok()).collect()
    }

    #[test]
    fn equally_loaded_workers_alternate() {
        let mut balancer = Balancer::new();
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
        let mut balancer = Balancer::new();
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
        Balancer::new().assign(1);
        let mut balancer = Balancer::new();
        drop(balancer.add_worker());
        balancer.assign(1);
        assert_eq!(balancer.workers[0].live.load(Ordering::Relaxed), 0);
    }
}
