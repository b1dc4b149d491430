//! Watches the rates of single keys.

use std::collections::BTreeMap;

use tollgate_control::{EventKind, EventPhase, LoggedEvent, OperatorEvent};
use tollgate_limiter::talkers::{RECENT_SECONDS, SpanCounts, Talker};

/// Maximum number of keys whose rate is above the threshold; further ones are not reported until one of these ends.
const MAX_KEYS: usize = 100;

/// Maximum number of keys that began within the repeat interval of events.
const MAX_BEGAN: usize = 500;

/// Maximum number of events that one round raises.
const MAX_ROUND_EVENTS: usize = 10;

/// Share of the threshold below which the rate of a key has to fall, in percent, so that a rate which moves around the
/// threshold is one event.
const END_PERCENT: u64 = 80;

/// Age of the oldest event from which an instance continues, in milliseconds.
const MAX_RESUME_AGE_MS: u64 = 3_600_000;

/// A domain and a key.
type DomainKey = (String, String);

/// Keys with a rate above the threshold.
#[derive(Debug)]
pub(super) struct KeyRateWatch {
    /// Hits per second; 0 for no events.
    threshold: u64,
    /// The highest rate of each since it began.
    above: BTreeMap<DomainKey, u64>,
    /// When each last began, in milliseconds since 1970: the log suppresses another begin for some time.
    began: BTreeMap<DomainKey, u64>,
}

/// Bounds of a key's rate, in hits per second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    least: u64,
    most: u64,
}

/// The rate that is certain: hits that may belong to other keys are left out.
pub(super) const fn certain_rate(talker: &Talker) -> u64 {
    talker.hits.saturating_sub(talker.error).saturating_div(RECENT_SECONDS)
}

impl KeyRateWatch {
    pub(super) const fn new(threshold: u64) -> Self {
        Self { threshold, above: BTreeMap::new(), began: BTreeMap::new() }
    }

    /// Continues from the latest events, newest first, that another instance or an earlier process logged.
    pub(super) fn resume(&mut self, events: &[LoggedEvent], now_ms: u64) {
        self.above.clear();
        self.began.clear();
        let kind = EventKind::KeyRate.name();
        let recent = events
            .iter()
            .filter(|event| event.kind == kind && now_ms.saturating_sub(event.at_ms) <= MAX_RESUME_AGE_MS);
        let mut latest: BTreeMap<DomainKey, bool> = BTreeMap::new();
        for event in recent {
            let key = (event.domain.clone(), event.key.clone().unwrap_or_default());
            let is_begin = event.phase == EventPhase::Began.name();
            if is_begin {
                self.began.entry(key.clone()).or_insert(event.at_ms);
            }
            latest.entry(key).or_insert(is_begin);
        }
        let began = latest.into_iter().filter(|(_, is_above)| *is_above);
        self.above.extend(began.map(|(key, _)| (key, self.threshold)).take(MAX_KEYS));
    }

    /// Compares the counts of the last complete window with the threshold.
    pub(super) fn round(&mut self, domains: &BTreeMap<&str, SpanCounts>, now_ms: u64) -> Vec<OperatorEvent> {
        if self.threshold == 0 {
            return Vec::new();
        }
        let mut rates: BTreeMap<DomainKey, Rate> = BTreeMap::new();
        for (domain, counts) in domains {
            for talker in counts.heaviest.top(usize::MAX) {
                let rate =
                    Rate { least: certain_rate(&talker), most: talker.hits.saturating_div(RECENT_SECONDS) };
                rates.insert(((*domain).to_owned(), talker.key), rate);
            }
        }
        let mut events = self.ended(&rates, domains);
        let interval_ms = u64::try_from(EventKind::KeyRate.repeat_interval().as_millis()).unwrap_or(u64::MAX);
        self.began.retain(|_, began| now_ms.saturating_sub(*began) < interval_ms);
        for (key, rate) in &rates {
            if let Some(highest) = self.above.get_mut(key) {
                *highest = rate.least.max(*highest);
            } else if rate.least >= self.threshold
                && self.above.len() < MAX_KEYS
                && events.len() < MAX_ROUND_EVENTS
                && self.began.len() < MAX_BEGAN
                && !self.began.contains_key(key)
            {
                self.above.insert(key.clone(), rate.least);
                self.began.insert(key.clone(), now_ms);
                events.push(self.began(key, rate.least));
            }
        }
        events
    }

    /// Ends the keys whose rate is certainly well below the threshold.
    fn ended(
        &mut self,
        rates: &BTreeMap<DomainKey, Rate>,
        domains: &BTreeMap<&str, SpanCounts>,
    ) -> Vec<OperatorEvent> {
        let end = self.threshold.saturating_mul(END_PERCENT).saturating_div(100);
        let most = |key: &DomainKey| match rates.get(key) {
            Some(rate) => rate.most,
            None => domains
                .get(&*key.0)
                .map_or(0, |counts| counts.heaviest.floor().saturating_div(RECENT_SECONDS)),
        };
        let low: Vec<DomainKey> =
            self.above.keys().filter(|key| most(key) < end).take(MAX_ROUND_EVENTS).cloned().collect();
        let ended = |key: DomainKey| {
            let highest = self.above.remove(&key)?;
            let (rate, threshold) = (most(&key), self.threshold);
            let message = format!(
                "The key has at most {rate} hits per second in all instances again; the threshold is {threshold}."
            );
            let figures = vec![
                ("hits_per_second", rate),
                ("highest_hits_per_second", highest),
                ("threshold_per_second", threshold),
            ];
            Some(event(EventPhase::Ended, key, message, figures))
        };
        low.into_iter().filter_map(ended).collect()
    }

    fn began(&self, key: &DomainKey, rate: u64) -> OperatorEvent {
        let threshold = self.threshold;
        let message =
            format!("The key has {rate} hits per second in all instances; the threshold is {threshold}.");
        let figures = vec![("hits_per_second", rate), ("threshold_per_second", threshold)];
        event(EventPhase::Began, key.clone(), message, figures)
    }
}

fn event(
    phase: EventPhase,
    (domain, key): DomainKey,
    message: String,
    figures: Vec<(&'static str, u64)>,
) -> OperatorEvent {
    OperatorEvent { kind: EventKind::KeyRate, phase, domain, rule: None, key: Some(key), message, figures }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of a window: per key its hits per second, and how many of them may belong to others.
    fn window(floor: u64, keys: &[(&str, u64, u64)]) -> SpanCounts {
        let keys: Vec<_> = keys.iter().map(|(key, rate, error)| (key, rate * 10, error * 10)).collect();
        let text = serde_json::json!({"h": {"f": floor * 10, "k": keys}, "d": {"f": 0, "k": []}});
        serde_json::from_value(text).expect("counts")
    }

    fn phases(
        watch: &mut KeyRateWatch,
        floor: u64,
        keys: &[(&str, u64, u64)],
    ) -> Vec<(&'static str, String)> {
        phases_at(0, watch, floor, keys)
    }

    fn phases_at(
        now_ms: u64,
        watch: &mut KeyRateWatch,
        floor: u64,
        keys: &[(&str, u64, u64)],
    ) -> Vec<(&'static str, String)> {
        let events = watch.round(&BTreeMap::from([("edge", window(floor, keys))]), now_ms);
        events.into_iter().map(|event| (event.phase.name(), event.key.unwrap_or_default())).collect()
    }

    fn expect(phase: &'static str, key: &str) -> Vec<(&'static str, String)> {
        vec![(phase, key.to_owned())]
    }

    #[test]
    fn a_key_begins_at_the_threshold_and_ends_well_below_it() {
        let mut watch = KeyRateWatch::new(1_000);
        assert_eq!(phases(&mut watch, 0, &[("k=a", 999, 0)]), []);
        assert_eq!(phases(&mut watch, 0, &[("k=a", 1_000, 0), ("k=b", 999, 0)]), expect("began", "k=a"));
        for rate in [900, 1_500, 801] {
            assert_eq!(phases(&mut watch, 0, &[("k=a", rate, 0)]), []);
        }
        assert_eq!(phases(&mut watch, 0, &[("k=a", 799, 0)]), expect("ended", "k=a"));
        assert_eq!(phases(&mut watch, 0, &[]), []);
    }

    #[test]
    fn hits_that_may_belong_to_other_keys_neither_begin_nor_end_an_event() {
        let mut watch = KeyRateWatch::new(1_000);
        assert_eq!(phases(&mut watch, 0, &[("k=a", 1_400, 401)]), []);
        assert_eq!(phases(&mut watch, 0, &[("k=a", 1_400, 400)]), expect("began", "k=a"));
        assert_eq!(phases(&mut watch, 0, &[("k=a", 1_000, 900)]), []);
        assert_eq!(phases(&mut watch, 800, &[]), [], "an absent key may have as many hits as the floor");
        assert_eq!(phases(&mut watch, 799, &[]), expect("ended", "k=a"));
    }

    #[test]
    fn events_are_bounded_and_none_is_raised_without_a_threshold() {
        let names: Vec<_> = (0..200).map(|at| format!("k={at:03}")).collect();
        let keys: Vec<_> = names.iter().map(|name| (&**name, 5_000, 0)).collect();
        let mut watch = KeyRateWatch::new(1_000);
        let raised: Vec<_> = (0..12).map(|_| phases(&mut watch, 0, &keys).len()).collect();
        assert_eq!(raised, [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 0, 0]);
        assert!(phases(&mut KeyRateWatch::new(0), 0, &keys).is_empty());
    }

    #[test]
    fn a_key_that_begins_again_soon_is_reported_when_the_log_accepts_it() {
        let mut watch = KeyRateWatch::new(1_000);
        let high = [("k=a", 5_000, 0)];
        assert_eq!(phases_at(0, &mut watch, 0, &high), expect("began", "k=a"));
        assert_eq!(phases_at(10_000, &mut watch, 0, &[]), expect("ended", "k=a"));
        assert_eq!(phases_at(20_000, &mut watch, 0, &high), []);
        assert_eq!(phases_at(299_999, &mut watch, 0, &high), []);
        assert_eq!(phases_at(300_000, &mut watch, 0, &high), expect("began", "k=a"));
    }

    #[test]
    fn another_instance_continues_from_the_log() {
        let mut first = KeyRateWatch::new(1_000);
        let both = BTreeMap::from([("edge", window(0, &[("k=a", 5_000, 0), ("k=b", 5_000, 0)]))]);
        let began = first.round(&both, 1_000);
        let ended = first.round(&BTreeMap::from([("edge", window(0, &[("k=b", 5_000, 0)]))]), 1_000);
        let log = |events: Vec<OperatorEvent>| {
            events.into_iter().map(|event| LoggedEvent {
                id: String::new(),
                at_ms: 1_000,
                instance: String::new(),
                kind: event.kind.name().to_owned(),
                phase: event.phase.name().to_owned(),
                domain: event.domain,
                rule: None,
                key: event.key,
                message: String::new(),
                figures: BTreeMap::new(),
            })
        };
        let newest_first: Vec<_> = log(ended).chain(log(began)).collect();
        let mut second = KeyRateWatch::new(1_000);
        second.resume(&newest_first, 2_000);
        assert_eq!(phases(&mut second, 0, &[("k=b", 5_000, 0)]), []);
        assert_eq!(phases(&mut second, 0, &[]), expect("ended", "k=b"));
        second.resume(&newest_first, 2_000 + MAX_RESUME_AGE_MS);
        assert_eq!(phases(&mut second, 0, &[]), []);
    }
}
