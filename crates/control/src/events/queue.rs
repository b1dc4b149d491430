//! Events of this process that are not logged yet, and the task that logs them.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::OperatorEvent;
use crate::{
    Control, ControlError, ControlResult,
    backend::Backend,
    metrics,
    stored::{now_ms, token},
};

/// Maximum number of queued events; the oldest is dropped for a new one.
const MAX_QUEUED: usize = 256;

/// Maximum time for which an event waits: the time of attempts to log each of those before it would be longer, but the
/// store responds to all or none.
const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// Time between two attempts to log an event.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which an event that cannot be logged is dropped.
const RETRY_PERIOD: Duration = Duration::from_secs(600);

impl Control {
    /// Queues an event, which is logged in the background, unless an equal one was logged recently, or for its occasion by any
    /// instance. Never waits.
    pub fn raise_event(&self, event: OperatorEvent) {
        self.event_queue().push(QueuedEvent { event, at_ms: now_ms(), token: token() });
    }

    /// Number of events that can be raised before the oldest is dropped.
    pub fn event_room(&self) -> usize {
        MAX_QUEUED - self.event_queue().events.lock().len()
    }
}

/// Logs queued events, oldest first; never returns.
pub async fn log_events(control: Control) -> Infallible {
    // Exported at zero, so that a first loss is seen as a change.
    metrics::events_dropped(0);
    loop {
        let queued = control.event_queue().oldest().await;
        let (token, kind) = (queued.token.clone(), queued.event.kind);
        let begun = Instant::now();
        let logged = loop {
            match log(&control, queued.clone()).await {
                Err(ControlError::Unavailable(_)) if begun.elapsed() < RETRY_PERIOD => {
                    sleep(RETRY_INTERVAL).await;
                }
                logged => break logged,
            }
        };
        match logged {
            Ok(true) => metrics::event_logged(kind),
            Ok(false) => {}
            Err(error) => {
                metrics::events_dropped(1);
                tracing::warn!(%error, kind = kind.name(), "event dropped: the log is unavailable");
            }
        }
        control.event_queue().remove(&token);
    }
}

/// Appends a queued event to the log; whether no equal one was there.
async fn log(control: &Control, queued: QueuedEvent) -> ControlResult<bool> {
    let QueuedEvent { event, at_ms, token } = queued;
    let (digest, interval) = (event.digest(), event.repeat_interval(MAX_WAIT));
    let logged = event.logged(control.instance(), at_ms);
    match control.backend() {
        Backend::Memory(memory) => {
            let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            Ok(memory.events.append(logged, digest, interval_ms))
        }
        Backend::Redis(redis) => redis.log_event(&logged, &digest, &token, interval).await,
    }
}

/// A queued event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QueuedEvent {
    event: OperatorEvent,
    /// Time when it was raised, in milliseconds since 1970.
    at_ms: u64,
    /// Distinguishes the event from any other, so that it is logged once though an attempt is repeated.
    token: String,
}

/// Bounded queue of events.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: Mutex<VecDeque<QueuedEvent>>,
    added: Notify,
}

impl EventQueue {
    fn push(&self, event: QueuedEvent) {
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
    async fn oldest(&self) -> QueuedEvent {
        loop {
            let added = self.added.notified();
            if let Some(oldest) = self.events.lock().front() {
                return oldest.clone();
            }
            added.await;
        }
    }

    /// Removes an event, unless a full queue has dropped it meanwhile.
    fn remove(&self, token: &str) {
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
