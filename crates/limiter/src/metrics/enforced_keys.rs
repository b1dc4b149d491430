//! Samples of the keys for which a limit is enforced, where that is a share: ramps are judged by keys, since a client chooses
//! its number of hits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::{CountedKey, clock::Clock};

/// Maximum number of keys of a rule in a sample: those with the lowest hashes, so that samples of several instances have
/// keys in common.
pub const MAX_SAMPLED_KEYS: usize = 256;

/// Time in seconds after which a key that has no requests leaves the sample.
const MAX_AGE_S: u32 = 600;

/// Enforced key of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledKey {
    /// Its hash.
    #[serde(rename = "k")]
    pub key: u32,
    /// Seconds since its last request.
    #[serde(rename = "s")]
    pub seen_s: u32,
    /// Seconds since it was last denied, if it was.
    #[serde(rename = "d")]
    pub denied_s: Option<u32>,
}

/// Times of the last request and of the last denial by the hash of the key, in seconds since 1970.
#[derive(Debug, Default)]
pub(super) struct KeySample(BTreeMap<u32, (u32, Option<u32>)>);

impl KeySample {
    /// Records a request of a key.
    pub(super) fn record(&mut self, key: CountedKey, is_denied: bool) {
        // Other bits than those that select the side of the key.
        let key = u32::try_from(key.hash().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or_default();
        let is_full = self.0.len() >= MAX_SAMPLED_KEYS;
        if is_full && self.0.last_key_value().is_some_and(|(last, _)| key > *last) {
            return;
        }
        let now = Clock::System.now().seconds();
        let (seen, denied) = self.0.entry(key).or_default();
        (*seen, *denied) = (now, if is_denied { Some(now) } else { *denied });
        if self.0.len() > MAX_SAMPLED_KEYS {
            self.0.pop_last();
        }
    }

    /// The keys, by their hashes.
    pub(super) fn keys(&mut self) -> Vec<SampledKey> {
        let now = Clock::System.now().seconds();
        let age = |at: u32| now.saturating_sub(at);
        self.0.retain(|_, (seen, _)| age(*seen) <= MAX_AGE_S);
        let keys = self.0.iter().map(|(key, (seen, denied))| SampledKey {
            key: *key,
            seen_s: age(*seen),
            denied_s: denied.map(age),
        });
        keys.collect()
    }
}
