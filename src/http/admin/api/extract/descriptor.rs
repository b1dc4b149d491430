//! Descriptors of API requests.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use tollgate_control::Pair;
use tollgate_core::descriptor::{Descriptor, Entry, Hits};

use crate::{http::admin::api::error::ApiError, service::RequestBounds};

/// Maximum bytes of keys and values of all descriptors of a request: each may be matched against thousands of regular
/// expressions.
const MAX_TOTAL_BYTES: usize = 64 << 10;

/// A descriptor of an API request, within the bounds of a gRPC request's descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(in crate::http::admin::api) struct ApiDescriptor(Vec<Pair>);

impl<'de> Deserialize<'de> for ApiDescriptor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = Vec::<Pair>::deserialize(deserializer)?;
        let RequestBounds { max_entries: entries, max_text_bytes: text, .. } = RequestBounds::default();
        if pairs.is_empty() || pairs.len() > entries {
            return Err(D::Error::custom(format!("expected a descriptor of 1 to {entries} entries")));
        }
        match pairs.iter().all(|pair| pair.key.len().max(pair.value.len()) <= text) {
            true => Ok(Self(pairs)),
            false => Err(D::Error::custom(format!("expected keys and values of at most {text} bytes"))),
        }
    }
}

impl ApiDescriptor {
    /// The domain's descriptor, with the given effect on its counter.
    pub(in crate::http::admin::api) fn descriptor(&self, hits: Hits) -> Descriptor<'_> {
        let entries = self.0.iter().map(|pair| Entry { key: &pair.key, value: &pair.value });
        Descriptor { entries: entries.collect(), limit: None, hits }
    }

    /// The entries.
    pub(in crate::http::admin::api) fn pairs(&self) -> &[Pair] {
        &self.0
    }

    /// Formats the descriptor as `key=value` pairs, joined by commas.
    pub(in crate::http::admin::api) fn to_text(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
        pairs.join(",")
    }
}

/// Checks the number of descriptors, from 1 to the maximum of a gRPC request, and their total size.
pub(in crate::http::admin::api) fn check_descriptors(descriptors: &[ApiDescriptor]) -> Result<(), ApiError> {
    let max = RequestBounds::default().max_descriptors;
    if !(1..=max).contains(&descriptors.len()) {
        return Err(ApiError::BadRequest(format!("descriptors: expected 1 to {max}")));
    }
    let pairs = descriptors.iter().flat_map(|ApiDescriptor(pairs)| pairs);
    let bytes = pairs
        .fold(0_usize, |sum, Pair { key, value }| sum.saturating_add(key.len()).saturating_add(value.len()));
    match bytes <= MAX_TOTAL_BYTES {
        true => Ok(()),
        false => Err(ApiError::BadRequest(format!("descriptors: expected at most {MAX_TOTAL_BYTES} bytes"))),
    }
}
