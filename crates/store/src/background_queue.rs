//! Slots of background refunds, which are requests without a waiting caller, in a bounded number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

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
