//! Log of events in this process.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::{LoggedEvent, MAX_EVENTS};

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
        state.logged = state.logged.saturating_add(1);
        let id = state.logged.to_string();
        state.events.push_back(LoggedEvent { id, ..event });
        if state.events.len() > MAX_EVENTS {
            state.events.pop_front();
        }
        true
    }

    /// Returns the latest events before `before`, or of all, newest first.
    pub(crate) fn events(&self, before: Option<&str>, limit: usize) -> Vec<LoggedEvent> {
        let before = before.map_or(u64::MAX, |id| id.parse().unwrap_or(0));
        let state = self.0.lock();
        state.events.iter().rev().filter(|event| number(event) < before).take(limit).cloned().collect()
    }

    /// Returns the oldest events that were not delivered yet, oldest first.
    pub(crate) fn undelivered(&self, limit: usize) -> Vec<LoggedEvent> {
        let state = self.0.lock();
        let later = state.events.iter().filter(|event| number(event) > state.delivered);
        later.take(limit).cloned().collect()
    }

    /// Records that all events up to this one were delivered.
    pub(crate) fn delivered(&self, id: &str) {
        self.0.lock().delivered = id.parse().unwrap_or(0);
    }
}

fn number(event: &LoggedEvent) -> u64 {
    event.id.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: u64) -> LoggedEvent {
        LoggedEvent {
            id: String::new(),
            at_ms,
            instance: String::new(),
            kind: "ramp_rolled_back".to_owned(),
            phase: "began".to_owned(),
            domain: String::new(),
            rule: None,
            key: None,
            message: String::new(),
            figures: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn the_latest_events_are_kept_and_equal_ones_suppressed_for_a_while() {
        let log = EventLog::default();
        assert!(log.append(event(1_000), "a".to_owned(), 500));
        assert!(!log.append(event(1_499), "a".to_owned(), 500));
        assert!(log.append(event(1_499), "b".to_owned(), 500));
        assert!(log.append(event(1_500), "a".to_owned(), 500));
        let ids = |events: Vec<LoggedEvent>| events.into_iter().map(|event| event.id).collect::<Vec<_>>();
        assert_eq!(ids(log.events(None, 2)), ["3", "2"]);
        assert_eq!(ids(log.events(Some("3"), 9)), ["2", "1"]);
        assert_eq!(ids(log.undelivered(2)), ["1", "2"]);
        log.delivered("2");
        assert_eq!(ids(log.undelivered(2)), ["3"]);
        for at in 0..2_000_u64 {
            assert!(log.append(event(2_000), format!("{at}"), 500));
        }
        assert_eq!(log.events(None, 5_000).len(), MAX_EVENTS);
        assert!(log.0.lock().suppressed.len() <= MAX_EVENTS);
    }
}
