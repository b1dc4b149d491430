//! Turns for calls that nobody waits for.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Turns at the most: what an outage leaves behind is bounded.
const MOST: usize = 10_000;

/// Turns for calls that nobody waits for; clones give out the same ones, and the workers of a process share one of
/// these.
#[derive(Clone, Debug, Default)]
pub struct Later(Arc<Turns>);

#[derive(Debug, Default)]
struct Turns {
    given_out: AtomicUsize,
    /// Tells that none is given out any more.
    settled: Notify,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn(Arc<Turns>);

impl Later {
    /// A turn; none when there are too many.
    pub(super) fn begin(&self) -> Option<Turn> {
        let more = |given_out: usize| (given_out < MOST).then(|| given_out.saturating_add(1));
        let begun = self.0.given_out.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        begun.ok().map(|_| Turn(Arc::clone(&self.0)))
    }

    /// Waits until no turn is given out. Others may be meanwhile.
    pub async fn settled(&self) {
        loop {
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
        if self.0.given_out.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.settled.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_turns_keeps_nobody_from_taking_one() {
        let later = Later::default();
        later.settled().await;
        let first = later.begin().expect("a turn");
        let mut waiting = tokio::spawn({
            let later = later.clone();
            async move { later.settled().await }
        });
        tokio::task::yield_now().await;
        let second = later.begin().expect("another turn");
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        (&mut waiting).await.expect("it is settled");
    }

    #[test]
    fn turns_are_bounded() {
        let later = Later::default();
        let turns: Vec<_> = (0..MOST).map(|_| later.begin()).collect();
        assert!(turns.iter().all(Option::is_some) && later.begin().is_none());
        drop(turns);
        assert!(later.begin().is_some());
    }
}
