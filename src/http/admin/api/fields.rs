//! Field types that requests share: reasons, times, integers, and descriptors.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Visitor},
};
use tollgate_control::{ListPair, Pair, bounds::MAX_TEXT_BYTES, pairs_text, parse_pairs};
use tollgate_core::{
    clock::Clock,
    descriptor::{Descriptor, Entry, Hits},
};

use super::response::ApiError;
use crate::service::RequestBounds;

/// The longest lifetime of a list entry or switch, in seconds: ten years.
const MAX_LIFETIME_S: u64 = 10 * 365 * 86_400;

/// The reason of a change: not blank, and of bounded length.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Reason(pub(super) String);

impl TryFrom<String> for Reason {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.trim_matches(|c: char| c.is_whitespace() || c.is_control()) {
            "" => Err("reason: expected text".to_owned()),
            text if text.len() > MAX_TEXT_BYTES => {
                Err(format!("reason: expected at most {MAX_TEXT_BYTES} bytes"))
            }
            text => Ok(Self(text.to_owned())),
        }
    }
}

/// The current time in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}

/// The expiry time of a change made at `created_at_ms`; `None` for one that does not expire.
pub(super) fn expires_at(created_at_ms: u64, expires_in_s: Option<Integer>) -> Result<Option<u64>, ApiError> {
    match expires_in_s {
        None => Ok(None),
        Some(Integer(seconds)) if (1..=MAX_LIFETIME_S).contains(&seconds) => {
            Ok(Some(created_at_ms + seconds * 1_000))
        }
        Some(_) => Err(ApiError::BadRequest(format!("expires_in_s: expected 1 to {MAX_LIFETIME_S}"))),
    }
}

/// The largest integer that a 64-bit float represents exactly together with all smaller ones.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// A non-negative integer in either notation: JSON does not distinguish 3.0 from 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer(pub(super) u64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntegerVisitor;
        impl Visitor<'_> for IntegerVisitor {
            type Value = Integer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a non-negative integer")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Integer, E> {
                match number.fract() == 0.0 && (0.0..=MAX_EXACT_FLOAT).contains(&number) {
                    true => Ok(Integer(number as u64)),
                    false => Err(E::custom("expected a non-negative integer")),
                }
            }
        }
        deserializer.deserialize_any(IntegerVisitor)
    }
}

/// Maximum bytes of keys and values of all descriptors of a request: each may be matched against thousands of regular
/// expressions.
const MAX_TOTAL_BYTES: usize = 64 << 10;

/// A descriptor of an API request, within the bounds of a gRPC request's descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct ApiDescriptor(Vec<Pair>);

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
pub(super) struct DescriptorText(pub(super) ApiDescriptor);

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
    pub(super) fn descriptor(&self, hits: Hits) -> Descriptor<'_> {
        let entries = self.0.iter().map(|pair| Entry { key: &pair.key, value: &pair.value });
        Descriptor { entries: entries.collect(), limit: None, hits }
    }

    /// The entries.
    pub(super) fn pairs(&self) -> &[Pair] {
        &self.0
    }

    /// Checks the number of entries and their sizes.
    pub(super) fn check(&self, bounds: &RequestBounds) -> Result<(), ApiError> {
        let RequestBounds { max_entries, max_text_bytes, .. } = *bounds;
        let is_short = |pair: &Pair| pair.key.len().max(pair.value.len()) <= max_text_bytes;
        match self.0.iter().all(is_short) {
            _ if self.0.len() > max_entries => {
                Err(ApiError::BadRequest(format!("{} entries; expected 1 to {max_entries}", self.0.len())))
            }
            true => Ok(()),
            false => Err(ApiError::BadRequest(format!(
                "a key or value is too long; expected at most {max_text_bytes} bytes"
            ))),
        }
    }

    /// Formats the descriptor as `key=value` pairs, joined by commas.
    pub(super) fn to_text(&self) -> String {
        pairs_text(&self.0)
    }
}

/// Checks the number of descriptors, from 1 to the maximum of a gRPC request, and their total size.
pub(super) fn check_descriptors(
    descriptors: &[ApiDescriptor],
    bounds: &RequestBounds,
) -> Result<(), ApiError> {
    let max = bounds.max_descriptors;
    if !(1..=max).contains(&descriptors.len()) {
        return Err(ApiError::BadRequest(format!("descriptors: expected 1 to {max}")));
    }
    descriptors.iter().try_for_each(|descriptor| descriptor.check(bounds))?;
    let pairs = descriptors.iter().flat_map(|ApiDescriptor(pairs)| pairs);
    let bytes: usize = pairs.map(|Pair { key, value }| key.len() + value.len()).sum();
    match bytes <= MAX_TOTAL_BYTES {
        true => Ok(()),
        false => Err(ApiError::BadRequest(format!("descriptors: expected at most {MAX_TOTAL_BYTES} bytes"))),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn integers_may_have_a_zero_fraction_and_nothing_else_is_accepted() {
        let read = |text: &str| serde_json::from_str::<Integer>(text).ok().map(|integer| integer.0);
        assert_eq!((read("3"), read("3.0"), read("3e2"), read("0")), (Some(3), Some(3), Some(300), Some(0)));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        for text in ["3.5", "-1", "-1.0", "1e300", "\"3\"", "null", "true", "18446744073709551616"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

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
