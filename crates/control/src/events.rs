//! Events that operators are notified of: on the dashboard, by the API and by webhook.
//!
//! ```text
//! Control::raise_event ──> queue ──> log (Redis | this process) ──> API, dashboard, webhook
//! ```
//!
//! - Raising an event never waits: it is queued in this process and logged in the background. While the store does not
//!   respond, events wait in the queue; a full queue drops the oldest.
//! - Every instance may raise the same event: the log suppresses repetitions, so that the fleet has it once.
//! - An event is stored as JSON whose texts are not interpreted, so that instances of other releases list and deliver
//!   events of kinds that they do not have.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tollgate_directory::Fingerprint;
use tollgate_metrics::{Counter, CounterFamily};

use crate::bounds::truncated;

/// Maximum number of retained events; older ones are dropped.
pub const MAX_EVENTS: usize = 1_000;

/// Time for which events are retained.
pub const EVENT_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Time for which an equal event is not logged again: one of the same kind about the same object.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of figures of an event.
const MAX_FIGURES: usize = 16;

tollgate_core::named! {
    /// Kind of an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum EventKind {
        /// Clients were added to the deny list after bans in a row.
        AbuseListed = "abuse_listed",
        /// A ramp has set the share of its rule back, because too many hits were denied.
        RampRolledBack = "ramp_rolled_back",
        /// A share of a limit was used in a window, by the limit's `notify`.
        ThresholdReached = "threshold_reached",
    }
}

pub(crate) static EVENTS: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_operator_events_total",
    &["kind"],
    "Events for operators that this instance logged.",
    &EVENT_KINDS,
);

/// Labels of the kinds of events.
const EVENT_KINDS: [[&str; 1]; EventKind::ALL.len()] = {
    let [a, b, c] = EventKind::ALL;
    [[a.name()], [b.name()], [c.name()]]
};

pub(crate) static EVENTS_DROPPED: Counter = Counter::new(
    "tollgate_operator_events_dropped_total",
    "Events for operators that this instance could not log.",
);

/// An event before it is logged. Texts are truncated to [`bounds::MAX_TEXT_BYTES`](crate::bounds::MAX_TEXT_BYTES).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorEvent {
    pub kind: EventKind,
    /// Domain; empty for an event about the whole service.
    pub domain: String,
    /// Path of the rule, if the event is about one.
    pub rule: Option<String>,
    /// Key for people, if the event is about one: `key=value`, joined by commas.
    pub key: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// Numbers by name. A name ends with its unit, as in `hits_per_second`.
    pub figures: Vec<(&'static str, u64)>,
    /// Occasion that the event is raised once for, if equal ones are not suppressed for the usual time only.
    pub occasion: Option<Occasion>,
}

/// Something that an event is raised once for, by all instances together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occasion {
    /// Identifier, equal in every instance.
    pub id: String,
    /// Time after which no instance raises the event for it.
    pub lifetime: Duration,
}

impl OperatorEvent {
    /// Time for which an equal event is not logged again, if events wait for this time at most before they are logged.
    pub(crate) fn repeat_interval(&self, max_wait: Duration) -> Duration {
        match &self.occasion {
            Some(occasion) => occasion.lifetime.saturating_add(max_wait),
            None => REPEAT_INTERVAL,
        }
    }

    /// Digest of what makes two events equal: the kind, the object and the occasion.
    pub(crate) fn digest(&self) -> String {
        let (rule, key) = (self.rule.as_deref(), self.key.as_deref());
        let texts = [self.kind.name(), &*self.domain, rule.unwrap_or_default(), key.unwrap_or_default()];
        let texts = texts.into_iter().chain(self.occasion.as_ref().map(|occasion| &*occasion.id));
        format!("{:032x}", Fingerprint::of(texts.map(str::as_bytes)).first_half())
    }

    pub(crate) fn logged(self, instance: &str, at_ms: u64) -> LoggedEvent {
        let figures = self.figures.into_iter().take(MAX_FIGURES);
        LoggedEvent {
            id: String::new(),
            at_ms,
            instance: instance.to_owned(),
            kind: self.kind.name().to_owned(),
            domain: truncated(self.domain),
            rule: self.rule.map(truncated),
            key: self.key.map(truncated),
            message: truncated(self.message),
            figures: figures.map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }
}

/// An event of the log, of this or another release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// Unique id; later events have greater ids.
    #[serde(default)]
    pub id: String,
    /// Time when it was raised, in milliseconds since 1970.
    pub at_ms: u64,
    /// Id of the instance that raised it.
    pub instance: String,
    /// Name of the kind; see [`EventKind::name`].
    pub kind: String,
    /// Domain; empty for an event about the whole service.
    pub domain: String,
    /// Path of the rule, if the event is about one.
    #[serde(default)]
    pub rule: Option<String>,
    /// Key for people, if the event is about one.
    #[serde(default)]
    pub key: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// Numbers by name.
    #[serde(default)]
    pub figures: BTreeMap<String, u64>,
}

/// The latest events of this process, and the position of the delivery.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Mutex<LogState>);

#[derive(Debug, Default)]
struct LogState {
    /// Oldest first.
    events: VecDeque<LoggedEvent>,
    /// Number of events so far, which is the id of the latest.
    logged: u64,
    /// End of the time in which equal events are suppressed, by their digest.
    suppressed: HashMap<String, u64>,
    /// Id of the last delivered event.
    delivered: u64,
}

impl EventLog {
    /// Appends an event, unless an equal one was logged within the interval; whether it did.
    pub(crate) fn append(&self, event: LoggedEvent, digest: String, interval_ms: u64) -> bool {
        let mut state = self.0.lock();
        let now = event.at_ms;
        state.suppressed.retain(|_, end| *end > now);
        if state.suppressed.contains_key(&digest) {
            return false;
        }
        // As many as there are events, which bounds them.
        if state.suppressed.len() >= MAX_EVENTS {
            state.suppressed.clear();
        }
        state.suppressed.insert(digest, now.saturating_add(interval_ms));
        state.logged += 1;
        let id = state.logged.to_string();
        state.events.push_back(LoggedEvent { id, ..event });
        if state.events.len() > MAX_EVENTS {
            state.events.pop_front();
        }
        true
    }

    /// Returns the latest events before `before`, or of all, newest first.
    pub(crate) fn events(&self, before: Option<&str>, limit: usize) -> Vec<LoggedEvent> {
        let before = before.map_or(u64::MAX, number);
        let state = self.0.lock();
        state.events.iter().rev().filter(|event| number(&event.id) < before).take(limit).cloned().collect()
    }

    /// Returns the oldest events that were not delivered yet, oldest first.
    pub(crate) fn undelivered(&self, limit: usize) -> Vec<LoggedEvent> {
        let state = self.0.lock();
        let later = state.events.iter().filter(|event| number(&event.id) > state.delivered);
        later.take(limit).cloned().collect()
    }

    /// Records that all events up to this one were delivered.
    pub(crate) fn delivered(&self, id: &str) {
        self.0.lock().delivered = number(id);
    }
}

/// Number of an id; 0 if the id is not a number.
fn number(id: &str) -> u64 {
    id.parse().unwrap_or(0)
}

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
            EVENTS_DROPPED.add(1);
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

    fn event(domain: &str, key: &str) -> OperatorEvent {
        OperatorEvent {
            kind: EventKind::RampRolledBack,
            domain: domain.to_owned(),
            rule: None,
            key: Some(key.to_owned()),
            message: "x".repeat(5_000),
            figures: vec![("hits_per_second", 7); 40],
            occasion: None,
        }
    }

    #[test]
    fn events_about_the_same_object_are_equal_and_no_others() {
        let first = event("a", "b");
        let later = OperatorEvent { figures: Vec::new(), message: String::new(), ..first.clone() };
        assert_eq!(first.digest(), later.digest());
        assert_eq!(first.digest().len(), 32);
        let of_rule = OperatorEvent { rule: Some("b".to_owned()), key: None, ..first.clone() };
        let listed = OperatorEvent { kind: EventKind::AbuseListed, ..first.clone() };
        let occasion = Occasion { id: "window 7".to_owned(), lifetime: Duration::ZERO };
        let of_window = OperatorEvent { occasion: Some(occasion), ..first.clone() };
        for other in [event("ab", ""), event("a", "c"), of_rule, listed, of_window] {
            assert_ne!(first.digest(), other.digest());
        }
    }

    #[test]
    fn a_logged_event_is_bounded_and_other_releases_read_it() {
        let logged = event("a", "b").logged("host-1", 5);
        assert_eq!((logged.message.len(), logged.figures.len()), (1_024, 1));
        let text = serde_json::to_string(&logged).expect("JSON");
        assert_eq!(serde_json::from_str::<LoggedEvent>(&text).expect("readable"), logged);
        let newer = r#"{"at_ms":1,"instance":"i","kind":"new","domain":"","message":"m","more":[]}"#;
        assert_eq!(serde_json::from_str::<LoggedEvent>(newer).expect("readable").kind, "new");
    }

    #[test]
    fn the_latest_events_are_kept_and_equal_ones_suppressed_for_a_while() {
        let log = EventLog::default();
        let append =
            |at_ms, digest: &str| log.append(event("", "").logged("", at_ms), digest.to_owned(), 500);
        assert!(append(1_000, "a"));
        assert!(!append(1_499, "a"));
        assert!(append(1_499, "b"));
        assert!(append(1_500, "a"));
        let ids = |events: Vec<LoggedEvent>| events.into_iter().map(|event| event.id).collect::<Vec<_>>();
        assert_eq!(ids(log.events(None, 2)), ["3", "2"]);
        assert_eq!(ids(log.events(Some("3"), 9)), ["2", "1"]);
        assert_eq!(ids(log.undelivered(2)), ["1", "2"]);
        log.delivered("2");
        assert_eq!(ids(log.undelivered(2)), ["3"]);
        for at in 0..2_000_u64 {
            assert!(append(2_000, &at.to_string()));
        }
        assert_eq!(log.events(None, 5_000).len(), MAX_EVENTS);
        assert!(log.0.lock().suppressed.len() <= MAX_EVENTS);
    }

    fn queued(at_ms: u64) -> QueuedEvent {
        QueuedEvent { event: event("", ""), at_ms, token: at_ms.to_string() }
    }

    #[tokio::test]
    async fn a_full_queue_drops_the_oldest_event() {
        let queue = EventQueue::default();
        (0..MAX_QUEUED as u64 + 2).for_each(|at_ms| queue.push(queued(at_ms)));
        assert_eq!(queue.oldest().await.at_ms, 2);
        queue.remove("1");
        assert_eq!(queue.oldest().await.at_ms, 2);
        queue.remove("2");
        assert_eq!((queue.oldest().await.at_ms, queue.events.lock().len()), (3, MAX_QUEUED - 1));
    }
}
