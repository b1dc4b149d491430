//! Assignment of connections to workers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::net::metrics;

/// Assigns each connection to the worker with the fewest.
///
/// A client has few, long-lived connections that carry all its calls, so they must not pile up on one worker, as they do
/// when workers compete for them.
#[derive(Debug)]
pub(super) struct Balancer<C> {
    workers: Vec<Worker<C>>,
    /// Start of the search, so that equally loaded workers alternate.
    next: usize,
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
}

impl ConnectionPermit {
    fn acquire(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        metrics::connection_opened();
        Self { live: Arc::clone(live) }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        metrics::connection_closed();
    }
}

impl<C> Balancer<C> {
    pub(super) const fn new() -> Self {
        Self { workers: Vec::new(), next: 0 }
    }

    /// Adds a worker and returns the receiver of its connections, which closes when the balancer is dropped.
    pub(super) fn add_worker(&mut self) -> UnboundedReceiver<(C, ConnectionPermit)> {
        let (connections, received) = unbounded_channel();
        self.workers.push(Worker { live: Arc::default(), connections });
        received
    }

    /// Number of open connections of all workers.
    pub(super) fn live(&self) -> usize {
        self.workers.iter().fold(0, |all, worker| all.saturating_add(worker.live.load(Ordering::Relaxed)))
    }

    /// Assigns `connection` to a worker; a worker that has ended drops it.
    pub(super) fn assign(&mut self, connection: C) {
        let (before, from) = self.workers.split_at_checked(self.next).unwrap_or((&[], &self.workers));
        let candidates = from.iter().chain(before).zip(0_usize..);
        let fewest = candidates.min_by_key(|(worker, _)| worker.live.load(Ordering::Relaxed));
        let Some((worker, skipped)) = fewest else { return };
        // The process stops when a worker ends, so no other worker has to take over the connection.
        let _ = worker.connections.send((connection, ConnectionPermit::acquire(&worker.live)));
        let chosen = self.next.saturating_add(skipped).saturating_add(1);
        self.next = chosen.checked_rem(self.workers.len()).unwrap_or(0);
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
