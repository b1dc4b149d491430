//! Hits of this instance in a minute.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use tollgate_anomaly::{Counts, MAX_SERIES, SeriesKey, Traffic};
use tollgate_limiter::metrics::{RuleTotal, RuleTotals};

/// Time between two readings of which the difference is a minute.
const MINUTE: RangeInclusive<Duration> = Duration::from_secs(45)..=Duration::from_secs(75);

/// Part of the hits, one in this many, that may be decided without the store in a minute that is no gap.
const MAX_DEGRADED: u64 = 20;

/// The totals of the last reading.
#[derive(Debug, Default)]
pub(super) struct Tally {
    totals: HashMap<SeriesKey, RuleTotal>,
    /// The minute that ended with it, and when that was.
    last: Option<(u64, Instant)>,
}

impl Tally {
    /// Takes the totals at the end of a minute, and returns the traffic of that minute; `None` if it is incomplete: the
    /// clock was changed, the process was suspended, or many hits were decided without the store.
    pub(super) fn take(&mut self, minute: u64, now: Instant, totals: &RuleTotals) -> Option<Traffic> {
        let key = |domain: &str, path: &str| SeriesKey { domain: domain.into(), rule: path.into() };
        self.take_totals(
            minute,
            now,
            totals.iter().map(|(domain, path, total)| (key(domain, path), total)).collect(),
        )
    }

    fn take_totals(
        &mut self,
        minute: u64,
        now: Instant,
        totals: Vec<(SeriesKey, RuleTotal)>,
    ) -> Option<Traffic> {
        let before = self.last.replace((minute, now));
        let is_minute = before.is_none_or(|(last, at)| {
            last.checked_add(1) == Some(minute) && MINUTE.contains(&now.saturating_duration_since(at))
        });
        let mut next = HashMap::with_capacity(self.totals.len());
        let (mut rules, mut domains) = (Vec::new(), BTreeMap::<SeriesKey, Counts>::new());
        let (mut hits, mut degraded) = (0_u64, 0_u64);
        for (key, total) in totals {
            let last = self.totals.get(&key).copied().unwrap_or_default();
            next.insert(key.clone(), total);
            let counts =
                Counts { hits: increase(last.hits, total.hits), denied: increase(last.over, total.over) };
            hits = hits.saturating_add(counts.hits);
            degraded = degraded.saturating_add(increase(last.degraded, total.degraded));
            if counts.hits > 0 {
                let of_domain = domains.entry(SeriesKey { rule: Box::default(), ..key.clone() }).or_default();
                of_domain.hits = of_domain.hits.saturating_add(counts.hits);
                of_domain.denied = of_domain.denied.saturating_add(counts.denied);
                rules.push((key, counts));
            }
        }
        self.totals = next;
        if !is_minute || degraded.saturating_mul(MAX_DEGRADED) > hits {
            return None;
        }
        rules.extend(domains);
        rules.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.hits));
        rules.truncate(MAX_SERIES);
        Some(Traffic(rules.into_iter().collect()))
    }
}

/// The increase of a total, which begins at zero again after its series was evicted.
const fn increase(last: u64, total: u64) -> u64 {
    match total.checked_sub(last) {
        Some(more) => more,
        None => total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rule: &str) -> SeriesKey {
        SeriesKey { domain: "edge".into(), rule: rule.into() }
    }

    /// Totals of rules: hits, denied ones, and those decided without the store.
    fn totals(rules: &[(&str, u64, u64, u64)]) -> Vec<(SeriesKey, RuleTotal)> {
        let total = |hits, over, degraded| RuleTotal { hits, over, degraded, ..RuleTotal::default() };
        rules.iter().map(|(rule, hits, over, degraded)| (key(rule), total(*hits, *over, *degraded))).collect()
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_minute_has_the_increase_of_each_rule_and_the_sum_of_its_domain() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        let first = tally.take_totals(7, start, totals(&[("a", 5, 1, 0), ("b", 3, 0, 0)])).expect("a minute");
        let counts = |hits, denied| Counts { hits, denied };
        assert_eq!(
            first.0,
            [(key(""), counts(8, 1)), (key("a"), counts(5, 1)), (key("b"), counts(3, 0))].into()
        );
        // The series of a rule that was evicted begins at zero again.
        let next =
            tally.take_totals(8, at(start, 60), totals(&[("a", 2, 0, 0), ("b", 3, 0, 0)])).expect("a minute");
        assert_eq!(next.0, [(key(""), counts(2, 0)), (key("a"), counts(2, 0))].into());
    }

    #[test]
    fn a_changed_clock_a_suspended_process_and_degraded_mode_make_gaps() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        let mut take = |minute, seconds, hits, degraded| {
            tally
                .take_totals(minute, at(start, seconds), totals(&[("a", hits, 0, degraded)]))
                .map(|traffic| traffic.0.get(&key("a")).copied().unwrap_or_default().hits)
        };
        assert_eq!(take(1, 0, 10, 0), Some(10));
        assert_eq!(take(2, 60, 20, 0), Some(10));
        assert_eq!(take(1, 120, 30, 0), None, "set back");
        assert_eq!(take(2, 180, 40, 0), Some(10));
        assert_eq!(take(3, 600, 140, 0), None, "suspended");
        assert_eq!(take(4, 660, 150, 0), Some(10));
        assert_eq!(take(6, 720, 160, 0), None, "set forward");
        assert_eq!(take(7, 780, 260, 5), Some(100), "a few");
        assert_eq!(take(8, 840, 360, 11), None, "not all were counted");
        assert_eq!(take(9, 900, 460, 11), Some(100));
    }

    #[test]
    fn the_heaviest_rules_are_reported() {
        let rules = (0..2 * MAX_SERIES as u64)
            .map(|rule| (key(&format!("{rule}")), RuleTotal { hits: rule, ..RuleTotal::default() }));
        let traffic = Tally::default().take_totals(1, Instant::now(), rules.collect()).expect("a minute");
        assert_eq!(traffic.0.len(), MAX_SERIES);
        assert!(traffic.0.contains_key(&key("")) && !traffic.0.contains_key(&key("1000")));
    }
}
