//! Distribution of the demand of keys, in bounded memory.

use std::collections::BTreeMap;

/// Relative error of a value: DDSketch (Masson, Rim and Lee, 2019) with buckets whose bounds grow by this ratio.
const RATIO: f64 = 1.02;

/// Maximum number of buckets: up to `RATIO` to this power, more than any number of hits in a window.
const MAX_BUCKET: u16 = 2_000;

/// Demand of keys in windows: how many keys requested how many hits. The values of a bucket differ by at most 2 %, and small
/// ones are exact.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DemandSketch {
    /// By bucket: the keys, and their hits.
    buckets: BTreeMap<u16, Bucket>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bucket {
    keys: f64,
    hits: f64,
}

#[allow(clippy::float_arithmetic)] // Estimates.
impl DemandSketch {
    /// Adds a key that requested `hits` in a window, on behalf of `keys` like it.
    pub(super) fn add(&mut self, hits: u64, keys: f64) {
        let at = (hits.max(1) as f64).ln() / RATIO.ln();
        let bucket = self.buckets.entry((at.floor() as u16).min(MAX_BUCKET)).or_default();
        bucket.keys += keys;
        bucket.hits += keys * hits as f64;
    }

    /// Adds another sketch.
    pub(super) fn merge(&mut self, other: &Self) {
        for (at, other) in &other.buckets {
            let bucket = self.buckets.entry(*at).or_default();
            bucket.keys += other.keys;
            bucket.hits += other.hits;
        }
    }

    /// Number of keys, counted in each window.
    pub(super) fn keys(&self) -> f64 {
        self.buckets.values().map(|bucket| bucket.keys).sum()
    }

    /// Hits of all keys.
    pub(super) fn hits(&self) -> f64 {
        self.buckets.values().map(|bucket| bucket.hits).sum()
    }

    /// The part of the hits that a limit would deny, if each window admitted exactly the limit.
    pub(super) fn denied_hits(&self, limit: f64) -> f64 {
        let all = self.hits();
        let denied: f64 =
            self.buckets.values().map(|bucket| (bucket.hits - limit * bucket.keys).max(0.0)).sum();
        if all > 0.0 { denied / all } else { 0.0 }
    }

    /// The part of the keys, in each window, of which a limit would deny a hit.
    pub(super) fn denied_keys(&self, limit: f64) -> f64 {
        let all = self.keys();
        let denied: f64 = self
            .buckets
            .values()
            .filter(|bucket| bucket.keys > 0.0 && bucket.hits / bucket.keys > limit)
            .map(|bucket| bucket.keys)
            .sum();
        if all > 0.0 { denied / all } else { 0.0 }
    }

    /// The least limit that denies at most `part` of the hits; `None` without any.
    pub(super) fn limit_for_hits(&self, part: f64) -> Option<f64> {
        let (all, mut above_keys, mut above_hits) = (self.hits(), 0.0, 0.0);
        if all <= 0.0 {
            return None;
        }
        let room = part * all;
        // From the heaviest keys down: with a limit between two values, exactly the keys above it lose hits.
        for bucket in self.buckets.values().rev().filter(|bucket| bucket.keys > 0.0) {
            let value = bucket.hits / bucket.keys;
            if above_hits - above_keys * value > room {
                break;
            }
            above_keys += bucket.keys;
            above_hits += bucket.hits;
        }
        Some(((above_hits - room) / above_keys).max(0.0))
    }

    /// The least limit of which at most `part` of the keys lose a hit; `None` without any.
    pub(super) fn limit_for_keys(&self, part: f64) -> Option<f64> {
        let (room, mut above) = (part * self.keys(), 0.0);
        let heaviest_first = self.buckets.values().rev().filter(|bucket| bucket.keys > 0.0);
        let mut limit = None;
        for bucket in heaviest_first {
            limit = Some(bucket.hits / bucket.keys);
            above += bucket.keys;
            if above > room {
                break;
            }
        }
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(values: impl IntoIterator<Item = u64>) -> DemandSketch {
        let mut sketch = DemandSketch::default();
        values.into_iter().for_each(|hits| sketch.add(hits, 1.0));
        sketch
    }

    fn is_near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 0.02 * expected + 1e-9
    }

    #[test]
    fn quantiles_of_keys_are_those_of_the_values() {
        let sketch = sketch(1..=100_000);
        for part in [0.001, 0.01, 0.05, 0.5] {
            let expected = 100_000.0 * (1.0 - part);
            let found = sketch.limit_for_keys(part).expect("keys");
            assert!(is_near(found, expected), "{part}: {found}, expected {expected}");
            assert!(sketch.denied_keys(found) <= part + 0.001);
        }
    }

    #[test]
    fn a_limit_denies_the_stated_part_of_the_hits() {
        let values: Vec<u64> = (1..=50_000_u64).map(|rank| (2_000_000 / rank).max(1)).collect();
        let all: u64 = values.iter().sum();
        let sketch = sketch(values.iter().copied());
        for part in [0.001, 0.01, 0.05, 0.3] {
            let limit = sketch.limit_for_hits(part).expect("hits");
            let denied: f64 = values.iter().map(|hits| (*hits as f64 - limit).max(0.0)).sum();
            assert!(is_near(denied / all as f64, part), "{part}: {limit} denies {}", denied / all as f64);
            assert!(is_near(sketch.denied_hits(limit), part));
        }
    }

    #[test]
    fn the_size_is_bounded_and_ends_are_defined() {
        assert!(sketch([0, 1, 1, u64::MAX]).buckets.len() <= 3);
        assert_eq!(DemandSketch::default().limit_for_hits(0.1), None);
        assert_eq!(DemandSketch::default().limit_for_keys(0.1), None);
        assert_eq!(DemandSketch::default().denied_hits(1.0), 0.0);
        let mut two = sketch([5]);
        two.merge(&sketch([5, 5]));
        assert_eq!((two.keys(), two.hits(), two.limit_for_keys(0.01)), (3.0, 15.0, Some(5.0)));
    }
}
