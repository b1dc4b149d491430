//! Turns for calls that nobody waits for.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Calls that have a turn at the most: what an outage leaves behind is bounded.
const MOST: usize = 10_000;

/// Turns for calls that nobody waits for; clones give out the same ones, and the workers of a process share one of
/// these.
#[derive(Clone, Debug, Default)]
pub struct BackgroundQueue(Arc<Turns>);

#[derive(Debug, Default)]
struct Turns {
    given_out: AtomicUsize,
    /// Tells that none is given out any more.
    settled: Notify,
}

/// A turn of some calls, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    calls: usize,
}

impl BackgroundQueue {
    /// A turn for so many calls; none when too many have one.
    pub(super) fn begin(&self, calls: usize) -> Option<Turn> {
        let more = |given_out: usize| (given_out < MOST).then(|| given_out.saturating_add(calls));
        let begun = self.0.given_out.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        begun.ok().map(|_| Turn { turns: Arc::clone(&self.0), calls })
    }

    /// Waits until no turn is given out. Others may be meanwhile.
    pub async fn settled(&self) {
        loop {
            // Made before the look, it hears of all that ends after it.
            let settled = self.0.settled.notified();
            if self.0.given_out.load(Ordering::Acquire) == 0 {
                return;
            }
            settled.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.turns.given_out.fetch_sub(self.calls, Ordering::AcqRel) == self.calls {
            self.turns.settled.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_turns_keeps_nobody_from_taking_one() {
        let later = BackgroundQueue::default();
        later.settled().await;
        let first = later.begin(1).expect("a turn");
        let mut waiting = tokio::spawn({
            let later = later.clone();
            async move { later.settled().await }
        });
        tokio::task::yield_now().await;
        let second = later.begin(2).expect("another turn");
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        (&mut waiting).await.expect("it is settled");
    }

    #[test]
    fn turns_are_bounded() {
        let later = BackgroundQueue::default();
        let turns: Vec<_> = (0..MOST / 2).map(|_| later.begin(2)).collect();
        assert!(turns.iter().all(Option::is_some) && later.begin(1).is_none());
        drop(turns);
        // One that is for many comes in all the same: else it never would.
        assert!(later.begin(MOST * 2).is_some());
    }
}
