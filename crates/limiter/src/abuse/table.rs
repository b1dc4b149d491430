//! Counts of the keys that a worker observes, in bounded memory.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use tollgate_core::descriptor::Entry;

use crate::talkers::key;

/// Maximum number of keys of a table.
pub(super) const MAX_KEYS: usize = 8_192;
/// Size of the keys above which some are dropped, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Hash of a domain and a descriptor, by the collector's hasher.
pub(super) type KeyHash = u64;

/// Hashes of keys.
pub(super) type KeySet = HashSet<KeyHash, FixedState>;

/// Keys by their hashes.
pub(super) type Keys = HashMap<KeyHash, ObservedKey, FixedState>;

/// Requests of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Denied requests.
    pub(super) denied: u64,
    /// Hits, denied or not.
    pub(super) hits: u64,
    /// Whether a request was admitted.
    pub(super) is_admitted: bool,
}

/// A key and its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedKey {
    pub(super) domain: Box<str>,
    /// The descriptor as text, see [`key`].
    pub(super) text: Box<str>,
    pub(super) counts: Counts,
    /// Whether its admitted requests count although it had no denied one.
    pub(super) is_watched: bool,
}

/// Table of one worker.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) keys: Keys,
    bytes: usize,
    /// Number of dropped keys.
    pub(super) dropped: u64,
    /// Keys whose admitted requests count although they had no denied one.
    pub(super) watched: Arc<KeySet>,
}

impl Counts {
    pub(super) const fn add(&mut self, more: Self) {
        self.denied = self.denied.saturating_add(more.denied);
        self.hits = self.hits.saturating_add(more.hits);
        self.is_admitted |= more.is_admitted;
    }

    /// Weight of the key when some must be dropped.
    pub(super) const fn weight(self) -> u64 {
        self.denied.saturating_add(self.hits)
    }
}

impl ObservedKey {
    const fn bytes(&self) -> usize {
        self.domain.len().saturating_add(self.text.len())
    }
}

impl Table {
    /// Counts requests of a key.
    pub(super) fn add(&mut self, hash: KeyHash, domain: &str, entries: &[Entry<'_>], counts: Counts) {
        if let Some(known) = self.keys.get_mut(&hash) {
            return known.counts.add(counts);
        }
        if self.keys.len() >= MAX_KEYS || self.bytes >= MAX_BYTES {
            self.drop_lightest();
        }
        let mut text = Vec::new();
        key::push(&mut text, 0, entries);
        let text = String::from_utf8(text).unwrap_or_default().into();
        let observed = ObservedKey { domain: domain.into(), text, counts, is_watched: false };
        self.bytes = self.bytes.saturating_add(observed.bytes());
        self.keys.insert(hash, observed);
    }

    /// Records an admitted request of a key, if the key is known.
    pub(super) fn admit(&mut self, hash: KeyHash, domain: &str, entries: &[Entry<'_>]) {
        if self.keys.contains_key(&hash) || self.watched.contains(&hash) {
            self.add(hash, domain, entries, Counts { is_admitted: true, ..Counts::default() });
        }
    }

    /// Takes the keys.
    pub(super) fn take(&mut self) -> (Keys, u64) {
        self.bytes = 0;
        (std::mem::take(&mut self.keys), std::mem::take(&mut self.dropped))
    }

    /// Drops the lightest quarter, and all keys that are no heavier than the heaviest of it; no watched ones, whose admitted
    /// requests end a run of denied ones.
    fn drop_lightest(&mut self) {
        let mut weights: Vec<_> = self.keys.values().map(|known| known.counts.weight()).collect();
        let (before, quarter) = (weights.len(), weights.len().div_ceil(4).saturating_sub(1));
        if quarter >= before {
            return;
        }
        let heaviest = *weights.select_nth_unstable(quarter).1;
        self.keys.retain(|hash, known| known.counts.weight() > heaviest || self.watched.contains(hash));
        self.bytes = self.keys.values().map(ObservedKey::bytes).sum();
        let dropped = u64::try_from(before.saturating_sub(self.keys.len())).unwrap_or(u64::MAX);
        self.dropped = self.dropped.saturating_add(dropped);
    }
}
