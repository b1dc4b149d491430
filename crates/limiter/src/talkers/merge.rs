//! Sum of several summaries, whose errors add up.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::summary::Estimate;

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
