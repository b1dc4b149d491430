//! Summaries of the heaviest keys, in bounded memory.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

/// Maximum number of keys of a summary: the capacity of a hash table with 1,024 slots.
pub(super) const MAX_KEYS: usize = 896;

/// Maximum number of keys of a new summary while memory is short.
pub(super) const MIN_KEYS: usize = 28;

/// Memory for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// [`MAX_KEYS`].
    Ample,
    /// No more than the present keys, or [`MIN_KEYS`].
    Short,
}

/// Estimated hits of a key: at most `weight`, and at least `weight - error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Hits that the key has at most.
    pub weight: u64,
    pub(super) error: u64,
}

/// A space-saving summary (Metwally, Agrawal and El Abbadi, 2005): each key that has a counter has counted at least its
/// hits, and a key without one has at most `floor` hits.
///
/// The original replaces the lightest counter by a new key. This one evicts many counters at once, which needs no order
/// among them (as Anderson et al., 2017, do): when it is full, only the heaviest three in four stay, and the weight of
/// the next one becomes the floor. The sum of the counters above the floor never exceeds the number of hits, and each
/// time the floor rises, more than three in four counters lose as much. Thus, for N hits, the floor is at most N
/// divided by three quarters of the capacity.
#[derive(Debug, Default)]
pub struct Summary {
    counters: HashMap<Box<str>, Estimate, RandomState>,
    /// Maximum number of hits of a key that has no counter.
    pub(super) floor: u64,
    /// Hits of all keys.
    total: u64,
    /// Size of the keys, in bytes.
    texts: usize,
}

impl Summary {
    /// Adds hits to a key.
    pub fn add(&mut self, key: &str, hits: u64, memory: Memory) {
        self.total = self.total.saturating_add(hits);
        if let Some(known) = self.counters.get_mut(key) {
            known.weight = known.weight.saturating_add(hits);
            return;
        }
        let capacity = if memory == Memory::Ample { MAX_KEYS } else { MIN_KEYS };
        if self.counters.len() >= capacity {
            self.evict(memory);
        }
        self.texts = self.texts.saturating_add(key.len());
        let weight = self.floor.saturating_add(hits);
        self.counters.insert(key.into(), Estimate { weight, error: self.floor });
    }

    /// Evicts the lightest quarter, and all counters that are no heavier than the heaviest of it.
    fn evict(&mut self, memory: Memory) {
        let mut weights: Vec<_> = self.counters.values().map(|known| known.weight).collect();
        let dropped = weights.len().div_ceil(4).saturating_sub(1);
        let (_, heaviest, _) = weights.select_nth_unstable(dropped);
        self.floor = self.floor.max(*heaviest);
        self.counters.retain(|_, known| known.weight > self.floor);
        self.texts = self.counters.keys().map(|key| key.len()).sum();
        if memory == Memory::Short {
            self.counters.shrink_to(MIN_KEYS);
        }
    }

    /// Returns every key that has a counter, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Estimate)> {
        self.counters.iter().map(|(key, known)| (&**key, *known))
    }

    /// Returns every key that has a counter with the hits that are certainly its own, and a part of the hits of the keys
    /// without one. Those were light, and therefore are represented by the lighter half of the counters.
    pub(super) fn shared_out(&self) -> impl Iterator<Item = (&str, u64)> {
        let own = |known: &Estimate| known.weight.saturating_sub(known.error);
        let mut counted: Vec<_> = self.counters.values().map(own).collect();
        let rest = self.total.saturating_sub(counted.iter().fold(0, |sum, hits| sum.saturating_add(*hits)));
        let middle = counted.len() / 2;
        let heaviest_light = if middle < counted.len() { *counted.select_nth_unstable(middle).1 } else { 0 };
        let light = counted.iter().filter(|hits| **hits <= heaviest_light).count() as u64;
        let part = rest.checked_div(light).unwrap_or_default();
        self.counters.iter().map(move |(key, known)| {
            let own = own(known);
            (&**key, if own <= heaviest_light { own.saturating_add(part) } else { own })
        })
    }

    /// Approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.texts.saturating_add(self.counters.allocation_size())
    }
}
