//! Demand of keys since it was last taken, for recommended limits.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::{
    key::{KeyEntries, OwnedEntry},
    samples::Sample,
};

/// Maximum number of keys between two takes; further ones are not counted.
const MAX_KEYS: usize = 65_536;

/// Requested hits of a key since the last take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDemand {
    /// The domain.
    pub domain: String,
    /// The entries of the descriptor.
    pub entries: Vec<OwnedEntry>,
    /// The hits.
    pub hits: u64,
}

/// Requested hits of keys, by domain and text of the key. Counts nothing before it is first taken.
#[derive(Debug, Default)]
pub(super) struct DemandSince {
    is_wanted: bool,
    domains: HashMap<Box<str>, HashMap<Box<str>, u64, RandomState>, RandomState>,
    keys: usize,
}

impl DemandSince {
    /// Adds a sample.
    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        if !self.is_wanted || sample.requested == 0 {
            return;
        }
        let keys = match self.domains.get_mut(sample.domain) {
            Some(keys) => keys,
            None => self.domains.entry(sample.domain.into()).or_default(),
        };
        if let Some(hits) = keys.get_mut(sample.key) {
            *hits = hits.saturating_add(sample.requested);
        } else if self.keys < MAX_KEYS {
            self.keys = self.keys.saturating_add(1);
            keys.insert(sample.key.into(), sample.requested);
        }
    }

    /// Takes what was added since the last time, except for truncated keys.
    pub(super) fn take(&mut self) -> Vec<KeyDemand> {
        self.is_wanted = true;
        self.keys = 0;
        let mut taken = Vec::new();
        for (domain, keys) in std::mem::take(&mut self.domains) {
            taken.extend(keys.into_iter().filter_map(|(key, hits)| {
                let entries = KeyEntries::read(&key).whole()?;
                Some(KeyDemand { domain: domain.to_string(), entries, hits })
            }));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_by_key_once_they_are_wanted() {
        let mut demand = DemandSince::default();
        let sample = |key, requested| Sample { domain: "edge", key, requested, denied: 0 };
        demand.add(&sample("k=a", 5));
        assert!(demand.take().is_empty(), "nothing was wanted yet");
        demand.add(&sample("k=a", 5));
        demand.add(&sample("k=a", 2));
        demand.add(&sample("k=denied", 0));
        demand.add(&sample("k=trunc\\", 1));
        let taken = demand.take();
        assert_eq!((taken.len(), taken[0].hits, &*taken[0].entries[0].value), (1, 7, "a"));
        assert!(demand.take().is_empty());
    }
}
