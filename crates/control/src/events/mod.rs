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

mod log;
mod logging;
mod queue;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::logging::log_events;
pub use self::queue::Occasion;
pub(crate) use self::{
    log::EventLog,
    queue::{EventQueue, QueuedEvent},
};
use crate::bounds::truncated;

/// Maximum number of retained events; older ones are dropped.
pub const MAX_EVENTS: usize = 1_000;

/// Time for which events are retained.
pub const EVENT_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Time for which an equal event is not logged again: one of the same kind and phase about the same object. A condition that
/// begins again within this time is to be raised after it.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Time for which the end of a condition is not logged again: for attempts of several instances at once. Ends are not
/// suppressed otherwise, because the log would show the condition as lasting.
const END_REPEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of figures of an event.
const MAX_FIGURES: usize = 16;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Clients were added to the deny list after bans in a row.
    AbuseListed,
    /// A ramp has set the share of its rule back, because too many hits were denied.
    RampRolledBack,
    /// A share of a limit was used in a window, by the limit's `notify`.
    ThresholdReached,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::AbuseListed, Self::RampRolledBack, Self::ThresholdReached];

    /// Name of the kind in the API, in webhooks and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AbuseListed => "abuse_listed",
            Self::RampRolledBack => "ramp_rolled_back",
            Self::ThresholdReached => "threshold_reached",
        }
    }
}

/// Phase of the condition that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventPhase {
    /// The condition began; its end is reported too.
    Began,
    /// The condition ended.
    Ended,
    /// An occurrence without a duration.
    Occurred,
}

impl EventPhase {
    /// Name of the phase in the API and in webhooks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Ended => "ended",
            Self::Occurred => "occurred",
        }
    }
}

/// An event before it is logged. Texts are truncated to [`bounds::MAX_TEXT_BYTES`](crate::bounds::MAX_TEXT_BYTES).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorEvent {
    /// Kind.
    pub kind: EventKind,
    /// Phase.
    pub phase: EventPhase,
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
}

impl OperatorEvent {
    /// Time for which an equal event is not logged again.
    pub(crate) const fn repeat_interval(&self) -> Duration {
        match self.phase {
            EventPhase::Began | EventPhase::Occurred => REPEAT_INTERVAL,
            EventPhase::Ended => END_REPEAT_INTERVAL,
        }
    }

    /// Digest of what makes two events equal: the kind, the phase, the object and the occasion.
    pub(crate) fn digest(&self, occasion: Option<&str>) -> String {
        let mut hash = Sha256::new();
        let texts = [
            self.kind.name(),
            self.phase.name(),
            &*self.domain,
            self.rule.as_deref().unwrap_or_default(),
            self.key.as_deref().unwrap_or_default(),
        ];
        for text in texts.into_iter().chain(occasion) {
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        }
        let digest = hash.finalize();
        digest.iter().take(16).fold(String::new(), |mut text, byte| {
            // Writing to a string never fails.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    pub(crate) fn logged(self, instance: &str, at_ms: u64) -> LoggedEvent {
        LoggedEvent {
            id: String::new(),
            at_ms,
            instance: instance.to_owned(),
            kind: self.kind.name().to_owned(),
            phase: self.phase.name().to_owned(),
            domain: truncated(self.domain),
            rule: self.rule.map(truncated),
            key: self.key.map(truncated),
            message: truncated(self.message),
            figures: self
                .figures
                .into_iter()
                .take(MAX_FIGURES)
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
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
    /// Name of the phase; see [`EventPhase::name`].
    pub phase: String,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(domain: &str, key: &str) -> OperatorEvent {
        OperatorEvent {
            kind: EventKind::RampRolledBack,
            phase: EventPhase::Began,
            domain: domain.to_owned(),
            rule: None,
            key: Some(key.to_owned()),
            message: "x".repeat(5_000),
            figures: vec![("hits_per_second", 7); 40],
        }
    }

    #[test]
    fn events_about_the_same_object_are_equal_and_no_others() {
        let first = event("a", "b");
        let later = OperatorEvent { figures: Vec::new(), message: String::new(), ..first.clone() };
        assert_eq!(first.digest(None), later.digest(None));
        assert_eq!(first.digest(None).len(), 32);
        let ended = OperatorEvent { phase: EventPhase::Ended, ..first.clone() };
        let of_rule = OperatorEvent { rule: Some("b".to_owned()), key: None, ..first.clone() };
        assert_ne!(first.digest(None), first.digest(Some("window 7")));
        for other in [event("ab", ""), event("a", "c"), ended, of_rule] {
            assert_ne!(first.digest(None), other.digest(None));
        }
    }

    #[test]
    fn a_logged_event_is_bounded_and_other_releases_read_it() {
        let logged = event("a", "b").logged("host-1", 5);
        assert_eq!((logged.message.len(), logged.figures.len()), (1_024, 1));
        let text = serde_json::to_string(&logged).expect("JSON");
        assert_eq!(serde_json::from_str::<LoggedEvent>(&text).expect("readable"), logged);
        let newer =
            r#"{"at_ms":1,"instance":"i","kind":"new","phase":"began","domain":"","message":"m","more":[]}"#;
        assert_eq!(serde_json::from_str::<LoggedEvent>(newer).expect("readable").kind, "new");
    }
}
