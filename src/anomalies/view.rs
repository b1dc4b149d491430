//! Anomalies and baselines, for the API.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tollgate_anomaly::{Anomaly, AnomalyEnd, AnomalyKind, SeriesKey, SeriesStatus, WatchEvent};

/// Maximum number of ended anomalies that are kept.
const MAX_RECENT: usize = 100;

const MINUTE_MS: u64 = 60_000;

/// Active and recent anomalies of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnomalyView {
    /// End of the last minute that was evaluated, in milliseconds since 1970; 0 for none yet.
    pub evaluated_at_ms: u64,
    /// Whether that minute was complete.
    pub is_complete: bool,
    /// Number of series with a baseline.
    pub learned: usize,
    /// Number of series without one yet.
    pub learning: usize,
    pub active: Vec<AnomalyRecord>,
    /// Ended ones, the latest first.
    pub recent: Vec<AnomalyRecord>,
}

/// One anomaly. Values are hits per minute, or shares of hits for `denied_share_high`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnomalyRecord {
    pub domain: String,
    /// The rule's path; none for the whole domain.
    pub rule: Option<String>,
    pub kind: String,
    /// Begin, in milliseconds since 1970.
    pub since_ms: u64,
    pub ended_at_ms: Option<u64>,
    /// Whether it ended because it lasted for so long that it is expected now.
    #[serde(default)]
    pub is_accepted: bool,
    pub observed: f64,
    pub expected: f64,
    /// The band of usual values.
    pub low: f64,
    pub high: f64,
}

impl AnomalyRecord {
    pub(super) fn of(key: &SeriesKey, anomaly: &Anomaly) -> Self {
        Self {
            domain: key.domain.to_string(),
            rule: (!key.rule.is_empty()).then(|| key.rule.to_string()),
            kind: anomaly.kind.name().to_owned(),
            since_ms: anomaly.since.saturating_mul(MINUTE_MS),
            ended_at_ms: None,
            is_accepted: false,
            observed: anomaly.observed,
            expected: anomaly.expected,
            low: anomaly.low,
            high: anomaly.high,
        }
    }

    /// The series and the anomaly, unless the kind is of another release.
    pub(super) fn anomaly(&self) -> Option<(SeriesKey, Anomaly)> {
        let kind = AnomalyKind::ALL.into_iter().find(|kind| kind.name() == self.kind)?;
        let key = SeriesKey {
            domain: self.domain.as_str().into(),
            rule: self.rule.as_deref().unwrap_or_default().into(),
        };
        let since = self.since_ms / MINUTE_MS;
        let Self { observed, expected, low, high, .. } = *self;
        Some((key, Anomaly { kind, since, observed, expected, low, high }))
    }
}

impl AnomalyView {
    /// Adds the ends among the events of a minute.
    pub(super) fn add_ended(&mut self, minute: u64, events: &[WatchEvent]) {
        for WatchEvent { key, transition } in events {
            let Some(end) = transition.end else { continue };
            let ended = AnomalyRecord {
                ended_at_ms: Some(minute.saturating_add(1).saturating_mul(MINUTE_MS)),
                is_accepted: end == AnomalyEnd::Accepted,
                ..AnomalyRecord::of(key, &transition.anomaly)
            };
            self.recent.insert(0, ended);
        }
        self.recent.truncate(MAX_RECENT);
    }

    /// Updates the rest after a minute.
    pub(super) fn update<'k>(
        &mut self,
        minute: u64,
        is_complete: bool,
        status: SeriesStatus,
        active: impl Iterator<Item = (&'k SeriesKey, Anomaly)>,
    ) {
        self.evaluated_at_ms = minute.saturating_add(1).saturating_mul(MINUTE_MS);
        self.is_complete = is_complete;
        (self.learned, self.learning) = (status.learned, status.learning);
        self.active = active.map(|(key, anomaly)| AnomalyRecord::of(key, &anomaly)).collect();
    }
}

/// The view of this process, shared.
#[derive(Clone, Debug, Default)]
pub struct AnomalyStatus(Arc<ArcSwap<AnomalyView>>);

impl AnomalyStatus {
    /// The view now.
    pub fn now(&self) -> Arc<AnomalyView> {
        self.0.load_full()
    }

    pub(super) fn set(&self, view: AnomalyView) {
        self.0.store(Arc::new(view));
    }
}
