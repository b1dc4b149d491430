//! Domains and descriptors, as callers send them.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::error::ApiError;
use crate::{
    control::Pair,
    descriptor::{Descriptor, Entry, Hits},
    service::Bounds,
};

/// Bytes of the keys and values of several descriptors: each may be matched with thousands of expressions.
const MOST_BYTES: usize = 64 << 10;

/// A descriptor as a caller sends it. It is in bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Pairs(pub(super) Vec<Pair>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = Vec::<Pair>::deserialize(deserializer)?;
        let Bounds { entries, text, .. } = Bounds::default();
        if pairs.is_empty() || pairs.len() > entries {
            return Err(D::Error::custom(format!("expected a descriptor of 1 to {entries} entries")));
        }
        match pairs.iter().all(|pair| pair.key.len().max(pair.value.len()) <= text) {
            true => Ok(Self(pairs)),
            false => Err(D::Error::custom(format!("expected keys and values of {text} bytes at the most"))),
        }
    }
}

impl Pairs {
    /// The descriptor, asking that of its counter.
    pub(super) fn descriptor(&self, hits: Hits) -> Descriptor<'_> {
        let entries = self.0.iter().map(|pair| Entry { key: &pair.key, value: &pair.value });
        Descriptor { entries: entries.collect(), limit: None, hits }
    }

    /// The descriptor for people: `key=value`, joined by commas.
    pub(super) fn shown(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
        pairs.join(",")
    }
}

/// Several descriptors, of which there is at least one, and no more than a request may have; and not all of them long.
pub(super) fn several(descriptors: &[Pairs]) -> Result<(), ApiError> {
    let most = Bounds::default().descriptors;
    if !(1..=most).contains(&descriptors.len()) {
        return Err(ApiError::BadRequest(format!("descriptors: expected 1 to {most}")));
    }
    let pairs = descriptors.iter().flat_map(|Pairs(pairs)| pairs);
    let bytes = pairs
        .fold(0_usize, |sum, Pair { key, value }| sum.saturating_add(key.len()).saturating_add(value.len()));
    match bytes <= MOST_BYTES {
        true => Ok(()),
        false => Err(ApiError::BadRequest(format!("descriptors: expected {MOST_BYTES} bytes at the most"))),
    }
}
