//! Demand of keys since it was last taken, for recommended limits.

use std::mem;

use foldhash::quality::RandomState;
use hashbrown::{HashMap, hash_map};

use crate::key::{KeyEntries, OwnedEntry};
use crate::sampler::Sample;

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

/// Hits by the text of the key.
type Keys = HashMap<Box<str>, u64, RandomState>;

/// Requested hits of keys, by domain and text of the key. Counts nothing before it is first taken.
#[derive(Debug, Default)]
pub(crate) struct DemandSince {
    is_wanted: bool,
    domains: HashMap<String, Keys, RandomState>,
    keys: usize,
}

impl DemandSince {
    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: &Sample<'_>) {
        if !self.is_wanted || sample.requested == 0 {
            return;
        }
        let keys = self.domains.entry_ref(sample.domain).or_default();
        if let Some(hits) = keys.get_mut(sample.key) {
            *hits = hits.saturating_add(sample.requested);
        } else if self.keys < MAX_KEYS {
            self.keys = self.keys.saturating_add(1);
            keys.insert(sample.key.into(), sample.requested);
        }
    }

    /// Takes what was added since the last time.
    pub(crate) fn take(&mut self) -> TakenDemand {
        self.is_wanted = true;
        let count_of_keys = mem::take(&mut self.keys);
        let domains = mem::take(&mut self.domains).into_iter();
        TakenDemand { count_of_keys, domains, domain: String::new(), keys: Keys::default().into_iter() }
    }
}

/// Demand that was taken: an iterator over its keys, except for truncated ones. A key is decoded when its turn comes.
#[derive(Debug)]
pub struct TakenDemand {
    /// Number of keys, truncated ones included.
    pub count_of_keys: usize,
    domains: hash_map::IntoIter<String, Keys>,
    /// The present domain, with the rest of its keys.
    domain: String,
    keys: hash_map::IntoIter<Box<str>, u64>,
}

impl Iterator for TakenDemand {
    type Item = KeyDemand;

    fn next(&mut self) -> Option<KeyDemand> {
        loop {
            let read = |(key, hits): (Box<str>, u64)| Some((KeyEntries::read(&key).whole()?, hits));
            if let Some((entries, hits)) = self.keys.find_map(read) {
                return Some(KeyDemand { domain: self.domain.clone(), entries, hits });
            }
            let (domain, keys) = self.domains.next()?;
            (self.domain, self.keys) = (domain, keys.into_iter());
        }
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
        assert_eq!(demand.take().count(), 0, "nothing was wanted yet");
        demand.add(&sample("k=a", 5));
        demand.add(&sample("k=a", 2));
        demand.add(&sample("k=denied", 0));
        demand.add(&sample("k=trunc\\", 1));
        let taken = demand.take();
        assert_eq!(taken.count_of_keys, 2, "with the truncated one");
        let taken: Vec<_> = taken.collect();
        assert_eq!((taken.len(), taken[0].hits, &*taken[0].entries[0].value), (1, 7, "a"));
        assert_eq!((demand.take().count_of_keys, demand.take().count()), (0, 0));
    }
}
