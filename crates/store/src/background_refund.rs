//! Background refunds: requests without a waiting caller, retried for some seconds, in a bounded number.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{runtime::Handle, sync::Notify, time::sleep};
use tollgate_runtime::backoff;

use super::{
    Store, StoreError, metrics,
    request::{Requests, TagRequest},
};

/// Capacity in requests: bounds the backlog that an outage leaves.
const MAX_REQUESTS: usize = 10_000;

/// Slots for background requests. Clones share them, and the workers of a process share one queue.
#[derive(Clone, Debug, Default)]
pub struct BackgroundQueue(Arc<Slots>);

#[derive(Debug, Default)]
struct Slots {
    in_use: AtomicUsize,
    /// Notified when the last slot is released.
    drained: Notify,
    is_draining: AtomicBool,
}

/// Slot of some requests, released on drop.
#[derive(Debug)]
pub(super) struct BackgroundSlot {
    slots: Arc<Slots>,
    requests: usize,
}

impl BackgroundQueue {
    /// Acquires a slot for `requests` requests; `None` when the capacity is used up.
    pub(super) fn acquire(&self, requests: usize) -> Option<BackgroundSlot> {
        let add = |in_use: usize| (in_use < MAX_REQUESTS).then(|| in_use.saturating_add(requests));
        let acquired = self.0.in_use.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        acquired.ok().map(|_| BackgroundSlot { slots: Arc::clone(&self.0), requests })
    }

    /// Whether to refund now what would be refunded later: the process is about to end.
    pub(super) fn is_draining(&self) -> bool {
        self.0.is_draining.load(Ordering::Acquire)
    }

    /// Has all tokens refunded, and waits until no slot is held. Slots may be acquired meanwhile.
    pub async fn drain(&self) {
        self.0.is_draining.store(true, Ordering::Release);
        loop {
            // Created before the check, so that no release after the check is missed.
            let drained = self.0.drained.notified();
            if self.0.in_use.load(Ordering::Acquire) == 0 {
                return;
            }
            drained.await;
        }
    }
}

impl Drop for BackgroundSlot {
    fn drop(&mut self) {
        if self.slots.in_use.fetch_sub(self.requests, Ordering::AcqRel) == self.requests {
            self.slots.drained.notify_waiters();
        }
    }
}

/// Pauses between attempts to refund, before jitter: they outlast a short outage. Jitter spreads them, so that the
/// refunds held up by an outage do not arrive at once.
const REFUND_RETRY_PAUSES: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

impl Store {
    /// Executes requests whose outcome has no waiter: refunds. Where a store takes time, a task of its own does so.
    /// Failed requests are retried for some seconds, unless that could refund twice.
    pub fn refund_in_background(&self, requests: Requests) {
        let mut calls = Requests::new();
        for request in requests {
            if self.counters.decides_at_once(&request) {
                let decided = self.counters.decide_by(&request, None).now_or_never();
                metrics::refund(decided.is_some_and(|decision| decision.is_ok()));
            } else {
                calls.push(request);
            }
        }
        if !calls.is_empty() {
            self.spawn_refund(calls);
        }
    }

    /// Executes refunds in a task of its own.
    fn spawn_refund(&self, requests: Requests) {
        // Without a runtime, the process is shutting down.
        let runtime = Handle::try_current().ok();
        match runtime.and_then(|runtime| Some((runtime, self.background.acquire(requests.len())?))) {
            Some((runtime, slot)) => {
                let store = self.clone();
                runtime.spawn(async move {
                    refund(&store, requests).await;
                    drop(slot);
                });
            }
            None => requests.iter().for_each(|_| metrics::refund(false)),
        }
    }
}

/// Executes refunds, and retries those that failed, with growing pauses.
async fn refund(store: &Store, mut requests: Requests) {
    for pause in REFUND_RETRY_PAUSES.into_iter().map(Some).chain([None]) {
        let decisions = store.decide(&requests, None).await;
        let mut failed = Requests::new();
        for (request, decision) in requests.into_iter().zip(decisions) {
            match decision {
                Ok(_) => metrics::refund(true),
                Err(error) if pause.is_some() && is_retryable(&request, &error) => failed.push(request),
                Err(_) => metrics::refund(false),
            }
        }
        requests = failed;
        match pause {
            Some(pause) if !requests.is_empty() => sleep(backoff::spread(pause)).await,
            Some(_) | None => return,
        }
    }
}

/// Whether a failed request may be sent again: it had no effect, or is idempotent.
fn is_retryable(request: &TagRequest, error: &StoreError) -> bool {
    error.charged_nothing() || request.checks().all(|check| check.hits.is_idempotent())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_for_drain_does_not_block_acquiring() {
        let background = BackgroundQueue::default();
        background.drain().await;
        let first = background.acquire(1).expect("a slot");
        let mut waiting = tokio::spawn({
            let background = background.clone();
            async move { background.drain().await }
        });
        tokio::task::yield_now().await;
        let second = background.acquire(2).expect("another slot");
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        (&mut waiting).await.expect("drained");
    }

    #[test]
    fn slots_are_bounded() {
        let background = BackgroundQueue::default();
        let slots: Vec<_> = (0..MAX_REQUESTS / 2).map(|_| background.acquire(2)).collect();
        assert!(slots.iter().all(Option::is_some) && background.acquire(1).is_none());
        drop(slots);
        // More than the capacity is accepted while some is free: otherwise it never would be.
        assert!(background.acquire(MAX_REQUESTS * 2).is_some());
    }
}
