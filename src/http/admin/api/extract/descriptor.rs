//! Descriptors of API requests.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use tollgate_control::{ListPair, Pair, pairs_text, parse_pairs};
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
        Self::try_from(Vec::<Pair>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl TryFrom<Vec<Pair>> for ApiDescriptor {
    type Error = String;

    fn try_from(pairs: Vec<Pair>) -> Result<Self, String> {
        if pairs.is_empty() { Err("expected a descriptor with an entry".to_owned()) } else { Ok(Self(pairs)) }
    }
}

/// A descriptor as the text of a query, in the syntax of [`parse_pairs`].
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::http::admin::api) struct DescriptorText(pub(in crate::http::admin::api) ApiDescriptor);

impl TryFrom<String> for DescriptorText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let pairs = parse_pairs(&text).map_err(|error| format!("descriptor: {error}"))?;
        let pairs = pairs.into_iter().map(|ListPair { key, value, .. }| Pair { key, value });
        ApiDescriptor::try_from(pairs.collect::<Vec<_>>()).map(Self)
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

    /// Checks the number of entries and their sizes.
    pub(in crate::http::admin::api) fn check(&self, bounds: &RequestBounds) -> Result<(), ApiError> {
        let RequestBounds { max_entries, max_text_bytes, .. } = *bounds;
        let is_short = |pair: &Pair| pair.key.len().max(pair.value.len()) <= max_text_bytes;
        match self.0.iter().all(is_short) {
            _ if self.0.len() > max_entries => Err(ApiError::BadRequest(format!(
                "{} entries; expected 1 to {max_entries} (--max-entries)",
                self.0.len()
            ))),
            true => Ok(()),
            false => Err(ApiError::BadRequest(format!(
                "a key or value is too long; expected at most {max_text_bytes} bytes (--max-text-bytes)"
            ))),
        }
    }

    /// Formats the descriptor as `key=value` pairs, joined by commas.
    pub(in crate::http::admin::api) fn to_text(&self) -> String {
        pairs_text(&self.0)
    }
}

/// Checks the number of descriptors, from 1 to the maximum of a gRPC request, and their total size.
pub(in crate::http::admin::api) fn check_descriptors(
    descriptors: &[ApiDescriptor],
    bounds: &RequestBounds,
) -> Result<(), ApiError> {
    let max = bounds.max_descriptors;
    if !(1..=max).contains(&descriptors.len()) {
        return Err(ApiError::BadRequest(format!("descriptors: expected 1 to {max}")));
    }
    descriptors.iter().try_for_each(|descriptor| descriptor.check(bounds))?;
    let pairs = descriptors.iter().flat_map(|ApiDescriptor(pairs)| pairs);
    let bytes = pairs
        .fold(0_usize, |sum, Pair { key, value }| sum.saturating_add(key.len()).saturating_add(value.len()));
    match bytes <= MAX_TOTAL_BYTES {
        true => Ok(()),
        false => Err(ApiError::BadRequest(format!("descriptors: expected at most {MAX_TOTAL_BYTES} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_pairs_whose_values_may_be_quoted() {
        for (text, expected) in [
            ("a=b", vec![("a", "b")]),
            ("a=,b=c=d", vec![("a", ""), ("b", "c=d")]),
            (r#"a="x,y=\"z",b=c"#, vec![("a", "x,y=\"z"), ("b", "c")]),
            ("xff=1.2.3.4, 5.6.7.8", vec![("xff", "1.2.3.4, 5.6.7.8")]),
        ] {
            let DescriptorText(ApiDescriptor(pairs)) =
                DescriptorText::try_from(text.to_owned()).expect("valid");
            let pairs: Vec<_> = pairs.iter().map(|pair| (&*pair.key, &*pair.value)).collect();
            assert_eq!(pairs, expected, "{text}");
        }
        for invalid in ["", "a", "=b", "a=b,", r#"a="b"#, r#"a="b"c"#, "a,b=c"] {
            assert!(DescriptorText::try_from(invalid.to_owned()).is_err(), "{invalid}");
        }
    }

    #[test]
    fn the_bounds_are_those_of_the_settings() {
        let pair = Pair { key: "k".into(), value: "v".into() };
        let descriptor = ApiDescriptor::try_from(vec![pair; 32]).expect("valid");
        let bounds =
            |max_entries, max_text_bytes| RequestBounds { max_entries, max_text_bytes, max_descriptors: 1 };
        assert!(descriptor.check(&bounds(32, 1)).is_ok());
        assert!(descriptor.check(&bounds(31, 1)).is_err() && descriptor.check(&bounds(32, 0)).is_err());
    }
}
