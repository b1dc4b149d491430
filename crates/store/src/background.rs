//! Slots for calls that nobody waits for.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Calls that have a turn at the most: what an outage leaves behind is bounded.
const MAX_REQUESTS: usize = 10_000;

/// Slots for calls that nobody waits for; clones give out the same ones, and the workers of a process share one of
/// these.
#[derive(Clone, Debug, Default)]
pub struct BackgroundQueue(Arc<Slots>);

#[derive(Debug, Default)]
struct Slots {
    in_use: AtomicUsize,
    /// Tells that none is given out any more.
    drained: Notify,
}

/// A turn of some calls, until it is dropped.
#[derive(Debug)]
pub(super) struct BackgroundSlot {
    slots: Arc<Slots>,
    requests: usize,
}

impl BackgroundQueue {
    /// A turn for so many calls; none when too many have one.
    pub(super) fn acquire(&self, requests: usize) -> Option<BackgroundSlot> {
        let add = |in_use: usize| (in_use < MAX_REQUESTS).then(|| in_use.saturating_add(requests));
        let acquired = self.0.in_use.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        acquired.ok().map(|_| BackgroundSlot { slots: Arc::clone(&self.0), requests })
    }

    /// Waits until no turn is given out. Others may be meanwhile.
    pub async fn drained(&self) {
        loop {
            // Made before the look, it hears of all that ends after it.
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
    async fn who_waits_for_turns_keeps_nobody_from_taking_one() {
        let background = BackgroundQueue::default();
        background.drained().await;
        let first = background.acquire(1).expect("a turn");
        let mut waiting = tokio::spawn({
            let background = background.clone();
            async move { background.drained().await }
        });
        tokio::task::yield_now().await;
        let second = background.acquire(2).expect("another turn");
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        (&mut waiting).await.expect("it is settled");
    }

    #[test]
    fn turns_are_bounded() {
        let background = BackgroundQueue::default();
        let slots: Vec<_> = (0..MAX_REQUESTS / 2).map(|_| background.acquire(2)).collect();
        assert!(slots.iter().all(Option::is_some) && background.acquire(1).is_none());
        drop(slots);
        // One that is for many comes in all the same: else it never would.
        assert!(background.acquire(MAX_REQUESTS * 2).is_some());
    }
}
