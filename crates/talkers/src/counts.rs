//! Counts of the heaviest keys of an instance, to be sent to others and merged with theirs.

use std::{collections::BTreeMap, iter::successors};

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::{DomainTop, Talker, key::KeyEntries, space_saving::Estimate};

/// Maximum number of keys of one ranking over the last minute, and over the last complete window.
pub(super) const MAX_KEYS: [usize; 2] = [100, 50];

/// Bytes of a key in JSON besides its text: brackets, quotes, commas, and two numbers.
const KEY_BYTES: usize = 24;

/// Keys of one ranking, heaviest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCounts {
    /// Maximum hits of a key that is not listed.
    #[serde(rename = "f")]
    pub(super) floor: u64,
    /// The text of each key, its estimated hits, and those that may belong to other keys.
    #[serde(rename = "k")]
    keys: Vec<(String, u64, u64)>,
}

/// Keys of both rankings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanCounts {
    /// Keys with the most requested hits.
    #[serde(rename = "h")]
    pub heaviest: KeyCounts,
    /// Keys with the most denied hits.
    #[serde(rename = "d")]
    pub denied: KeyCounts,
}

/// Keys of one domain on one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainCounts {
    /// The domain.
    #[serde(rename = "n")]
    pub domain: String,
    /// Counts of the last minute; 50 to 60 seconds.
    #[serde(rename = "m")]
    pub minute: SpanCounts,
    /// Counts of the last complete window, of [`RECENT_SECONDS`](super::RECENT_SECONDS).
    #[serde(rename = "r")]
    pub recent: SpanCounts,
}

impl KeyCounts {
    /// The heaviest of these keys, at most `limit`.
    pub(super) fn new(floor: u64, keys: &[(&str, Estimate)], limit: usize) -> Self {
        let dropped = keys.get(limit).map_or(0, |(_, estimate)| estimate.weight);
        let listed = keys.iter().take(limit);
        Self {
            floor: floor.max(dropped),
            keys: listed.map(|(key, known)| ((*key).to_owned(), known.weight, known.error)).collect(),
        }
    }

    /// Returns the heaviest keys, at most `limit`.
    pub fn top(&self, limit: usize) -> Vec<Talker> {
        let talker = |(key, hits, error): &(String, u64, u64)| {
            let entries = KeyEntries::read(key);
            Talker { key: entries.to_text(), descriptor: entries.whole(), hits: *hits, error: *error }
        };
        self.keys.iter().take(limit).map(talker).collect()
    }

    /// Sums up the counts of several instances.
    fn merged<'c>(parts: impl Iterator<Item = &'c Self>) -> Self {
        let mut merge = Merge::default();
        for part in parts {
            let estimate = |(key, weight, error): &'c (String, u64, u64)| {
                (&**key, Estimate { weight: *weight, error: *error })
            };
            merge.add(part.floor, part.keys.iter().map(estimate));
        }
        let (floor, keys) = merge.sorted();
        Self::new(floor, &keys, usize::MAX)
    }

    fn truncate(&mut self, limit: usize) {
        if let Some((_, weight, _)) = self.keys.get(limit) {
            self.floor = self.floor.max(*weight);
            self.keys.truncate(limit);
        }
    }

    /// Approximate size in JSON.
    fn bytes(&self, limit: usize) -> usize {
        let escaped = |byte: u8| match byte {
            b'"' | b'\\' => 2,
            0..0x20 => 6,
            _ => 1_usize,
        };
        let bytes = |key: &str| key.bytes().map(escaped).fold(KEY_BYTES, usize::saturating_add);
        self.keys.iter().take(limit).fold(0, |sum, (key, _, _)| sum.saturating_add(bytes(key)))
    }
}

impl SpanCounts {
    /// Returns the heaviest keys as those of `domain`, at most `limit`.
    pub fn top(&self, domain: &str, limit: usize) -> DomainTop {
        DomainTop {
            domain: domain.to_owned(),
            heaviest: self.heaviest.top(limit),
            denied: self.denied.top(limit),
        }
    }
}

impl DomainCounts {
    const fn all(&self) -> [&KeyCounts; 4] {
        [&self.recent.heaviest, &self.recent.denied, &self.minute.heaviest, &self.minute.denied]
    }
}

/// Drops the lightest keys of all domains until the counts have at most about `max_bytes` in JSON.
pub(super) fn fit(domains: &mut [DomainCounts], max_bytes: usize) {
    let names = domains.iter().fold(0_usize, |sum, counts| sum.saturating_add(counts.domain.len()));
    let bytes = |limit: usize| {
        let all = domains.iter().flat_map(DomainCounts::all);
        all.fold(names, |sum, counts| sum.saturating_add(counts.bytes(limit)))
    };
    let [most, _] = MAX_KEYS;
    let fewer = |limit: &usize| (*limit > 0).then(|| limit.saturating_mul(3).saturating_div(4));
    let limit = successors(Some(most), fewer).find(|limit| bytes(*limit) <= max_bytes).unwrap_or(0);
    for SpanCounts { heaviest, denied } in domains.iter_mut().flat_map(|of| [&mut of.minute, &mut of.recent])
    {
        heaviest.truncate(limit);
        denied.truncate(limit);
    }
}

/// Sums up the counts of several instances over one of their spans of time, by domain.
pub fn merge<'c>(
    instances: impl Iterator<Item = &'c [DomainCounts]>,
    span: fn(&DomainCounts) -> &SpanCounts,
) -> BTreeMap<&'c str, SpanCounts> {
    let mut parts: BTreeMap<&str, Vec<&SpanCounts>> = BTreeMap::new();
    for counts in instances.flatten() {
        parts.entry(&counts.domain).or_default().push(span(counts));
    }
    let merged = |parts: Vec<&SpanCounts>| SpanCounts {
        heaviest: KeyCounts::merged(parts.iter().map(|part| &part.heaviest)),
        denied: KeyCounts::merged(parts.iter().map(|part| &part.denied)),
    };
    parts.into_iter().map(|(domain, parts)| (domain, merged(parts))).collect()
}

/// Keys of several summaries, of other windows or of other instances.
///
/// A key without a counter in a summary may have had as many hits there as its floor. Thus the errors add up, to no more
/// than one summary of all hits could have.
#[derive(Debug, Default)]
pub(super) struct Merge<'k> {
    keys: HashMap<&'k str, MergedKey, RandomState>,
    /// Sum of the floors.
    floor: u64,
}

#[derive(Debug, Default)]
struct MergedKey {
    weight: u64,
    error: u64,
    /// Sum of the floors of the summaries that have the key.
    floors: u64,
}

impl<'k> Merge<'k> {
    /// Adds a summary: the maximum hits of a key that it lacks, and its keys.
    pub(super) fn add(&mut self, floor: u64, keys: impl Iterator<Item = (&'k str, Estimate)>) {
        self.floor = self.floor.saturating_add(floor);
        for (key, estimate) in keys {
            let merged = self.keys.entry(key).or_default();
            merged.weight = merged.weight.saturating_add(estimate.weight);
            merged.error = merged.error.saturating_add(estimate.error);
            merged.floors = merged.floors.saturating_add(floor);
        }
    }

    /// Returns the maximum hits of a key that no summary has, and all keys, heaviest first.
    pub(super) fn sorted(self) -> (u64, Vec<(&'k str, Estimate)>) {
        let floor = self.floor;
        let estimate = |merged: MergedKey| {
            let absent = floor.saturating_sub(merged.floors);
            Estimate {
                weight: merged.weight.saturating_add(absent),
                error: merged.error.saturating_add(absent),
            }
        };
        let mut keys: Vec<_> = self.keys.into_iter().map(|(key, merged)| (key, estimate(merged))).collect();
        keys.sort_unstable_by(|(a, more), (b, less)| less.weight.cmp(&more.weight).then(a.cmp(b)));
        (floor, keys)
    }
}
