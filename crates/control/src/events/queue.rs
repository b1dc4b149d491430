//! Events of this process that are not logged yet.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::OperatorEvent;
use crate::metrics;

/// Maximum number of queued events; the oldest is dropped for a new one.
const MAX_QUEUED: usize = 256;

/// Maximum time for which an event waits: the time of attempts to log each of those before it would be longer, but the
/// store responds to all or none.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// A queued event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueuedEvent {
    pub(crate) event: OperatorEvent,
    /// Time when it was raised, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Distinguishes the event from any other, so that it is logged once though an attempt is repeated.
    pub(crate) token: String,
}

/// Bounded queue of events.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: Mutex<VecDeque<QueuedEvent>>,
    added: Notify,
}

impl EventQueue {
    /// Number of events that can be pushed before the oldest is dropped.
    pub(crate) fn room(&self) -> usize {
        MAX_QUEUED - self.events.lock().len()
    }

    pub(crate) fn push(&self, event: QueuedEvent) {
        let mut events = self.events.lock();
        if events.len() >= MAX_QUEUED {
            events.pop_front();
            metrics::events_dropped(1);
        }
        events.push_back(event);
        drop(events);
        self.added.notify_one();
    }

    /// Waits for an event, and returns the oldest, which stays in the queue.
    pub(crate) async fn oldest(&self) -> QueuedEvent {
        loop {
            let added = self.added.notified();
            if let Some(oldest) = self.events.lock().front() {
                return oldest.clone();
            }
            added.await;
        }
    }

    /// Removes an event, unless a full queue has dropped it meanwhile.
    pub(crate) fn remove(&self, token: &str) {
        let mut events = self.events.lock();
        if events.front().is_some_and(|oldest| oldest.token == token) {
            events.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventKind;

    fn event(at_ms: u64) -> QueuedEvent {
        let event = OperatorEvent {
            kind: EventKind::RampRolledBack,
            domain: String::new(),
            rule: None,
            key: None,
            message: String::new(),
            figures: Vec::new(),
            occasion: None,
        };
        QueuedEvent { event, at_ms, token: at_ms.to_string() }
    }

    #[tokio::test]
    async fn a_full_queue_drops_the_oldest_event() {
        let queue = EventQueue::default();
        (0..MAX_QUEUED as u64 + 2).for_each(|at_ms| queue.push(event(at_ms)));
        assert_eq!(queue.oldest().await.at_ms, 2);
        queue.remove("1");
        assert_eq!(queue.oldest().await.at_ms, 2);
        queue.remove("2");
        assert_eq!((queue.oldest().await.at_ms, queue.events.lock().len()), (3, MAX_QUEUED - 1));
    }
}
