//! A bounded set of series.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    anomaly::{Anomaly, Counts, Transition},
    band::Sensitivity,
    series::Series,
};

/// Maximum number of series: the heaviest rules and domains.
pub const MAX_SERIES: usize = 1_000;

/// Factor by which a new rule must be heavier than the lightest one that it replaces.
const REPLACE_FACTOR: f64 = 2.0;

/// Name of a series: a domain and the path of a rule, which is empty for the whole domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    pub domain: Box<str>,
    pub rule: Box<str>,
}

/// Traffic of a minute, of the whole fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic(pub BTreeMap<SeriesKey, Counts>);

/// Begin or end of an anomaly of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent {
    pub key: SeriesKey,
    pub transition: Transition,
}

/// Number of series by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesStatus {
    /// With a baseline.
    pub learned: usize,
    /// Without one yet.
    pub learning: usize,
}

/// The series of a fleet.
#[derive(Debug, Default)]
pub struct Watch {
    series: BTreeMap<SeriesKey, Series>,
    /// Hits of rules without a series, in the hour in progress.
    candidates: BTreeMap<SeriesKey, u64>,
    /// Dropped since they were last taken.
    dropped: BTreeSet<SeriesKey>,
    last: Option<u64>,
    /// Series of rules and domains that are removed: a minute without hits is no drop, but a gap.
    removed: BTreeSet<SeriesKey>,
}

impl Watch {
    /// A set with stored series.
    pub fn new(stored: impl IntoIterator<Item = (SeriesKey, Series)>) -> Self {
        Self { series: stored.into_iter().take(MAX_SERIES).collect(), ..Self::default() }
    }

    /// The last minute that was taken into account, since 1970.
    pub const fn last(&self) -> Option<u64> {
        self.last
    }

    /// Adds a minute, unless it is not later than all before; `None` is a gap. Skipped minutes are gaps.
    pub fn observe(
        &mut self,
        minute: u64,
        traffic: Option<&Traffic>,
        sensitivity: Sensitivity,
    ) -> Vec<WatchEvent> {
        if self.last.is_some_and(|last| minute <= last) {
            return Vec::new();
        }
        let is_new_hour = self.last.replace(minute).is_some_and(|last| last / 60 != minute / 60);
        if is_new_hour {
            self.replace_light_ones();
        }
        traffic.inspect(|traffic| self.admit(traffic));
        let mut found = Vec::new();
        for (key, series) in &mut self.series {
            let counts = traffic.and_then(|traffic| traffic.0.get(key).copied());
            let is_removed = counts.is_none() && self.removed.contains(key);
            let counts = counts.or_else(|| (traffic.is_some() && !is_removed).then(Counts::default));
            let mut events = series.observe(minute, counts, sensitivity);
            if is_removed {
                events.extend(series.abandon());
            }
            found.extend(events.into_iter().map(|transition| WatchEvent { key: key.clone(), transition }));
        }
        found
    }

    /// Adds series for new rules while there is room, else counts them as candidates.
    fn admit(&mut self, traffic: &Traffic) {
        for (key, counts) in &traffic.0 {
            if self.series.contains_key(key) {
                continue;
            }
            if self.series.len() < MAX_SERIES {
                self.dropped.remove(key);
                self.series.insert(key.clone(), Series::default());
            } else if self.candidates.len() < MAX_SERIES || self.candidates.contains_key(key) {
                let hits = self.candidates.entry(key.clone()).or_default();
                *hits = hits.saturating_add(counts.hits);
            }
        }
    }

    /// Replaces light series by candidates that are much heavier.
    fn replace_light_ones(&mut self) {
        let candidates = std::mem::take(&mut self.candidates);
        if candidates.is_empty() {
            return;
        }
        let mut heaviest: Vec<_> =
            candidates.into_iter().map(|(key, hits)| (hits as f64 / 60.0, key)).collect();
        heaviest.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let mut lightest: Vec<_> =
            self.series.iter().map(|(key, series)| (series.level(), key.clone())).collect();
        lightest.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        for ((level, light), (rate, heavy)) in lightest.into_iter().zip(heaviest) {
            if rate <= REPLACE_FACTOR * level.max(1.0) {
                break;
            }
            self.series.remove(&light);
            self.dropped.insert(light);
            self.dropped.remove(&heavy);
            self.series.insert(heavy, Series::default());
        }
    }

    /// Sets what identifies the limits of rules; see [`Series::set_limit`].
    pub fn set_limits<'k>(&mut self, limits: impl IntoIterator<Item = (&'k SeriesKey, u32)>) {
        for (key, limit) in limits {
            if let Some(series) = self.series.get_mut(key) {
                series.set_limit(limit);
            }
        }
    }

    /// Sets which series have a rule or a domain. Instances that activate other rules later may still report the others.
    pub fn set_present(&mut self, is_present: impl Fn(&SeriesKey) -> bool) {
        self.removed = self.series.keys().filter(|key| !is_present(key)).cloned().collect();
    }

    /// Continues an anomaly that another instance found.
    pub fn resume(&mut self, key: &SeriesKey, anomaly: &Anomaly) {
        if let Some(series) = self.series.get_mut(key) {
            series.resume(anomaly);
        }
    }

    /// The anomalies that last.
    pub fn active(&self) -> impl Iterator<Item = (&SeriesKey, Anomaly)> {
        self.series.iter().flat_map(|(key, series)| series.active().map(move |anomaly| (key, anomaly)))
    }

    pub fn status(&self) -> SeriesStatus {
        let learned = self.series.values().filter(|series| series.is_learned()).count();
        SeriesStatus { learned, learning: self.series.len().saturating_sub(learned) }
    }

    /// All series.
    pub fn series(&self) -> impl ExactSizeIterator<Item = (&SeriesKey, &Series)> {
        self.series.iter()
    }

    /// The series that were dropped since the last call.
    pub fn take_dropped(&mut self) -> BTreeSet<SeriesKey> {
        std::mem::take(&mut self.dropped)
    }
}
