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
        Self::try_from(Vec::<Pair>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl TryFrom<Vec<Pair>> for ApiDescriptor {
    type Error = String;

    fn try_from(pairs: Vec<Pair>) -> Result<Self, String> {
        let RequestBounds { max_entries: entries, max_text_bytes: text, .. } = RequestBounds::default();
        if pairs.is_empty() || pairs.len() > entries {
            return Err(format!("expected a descriptor of 1 to {entries} entries"));
        }
        match pairs.iter().all(|pair| pair.key.len().max(pair.value.len()) <= text) {
            true => Ok(Self(pairs)),
            false => Err(format!("expected keys and values of at most {text} bytes")),
        }
    }
}

/// A descriptor as the text of a query: `key=value` pairs, joined by commas. A value in double quotes is a JSON string, and
/// may contain commas.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::http::admin::api) struct DescriptorText(pub(in crate::http::admin::api) ApiDescriptor);

impl TryFrom<String> for DescriptorText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (mut pairs, mut rest) = (Vec::new(), &*text);
        loop {
            let (pair, behind) = first_pair(rest).ok_or("descriptor: expected KEY=VALUE,…")?;
            pairs.push(pair);
            match behind.strip_prefix(',') {
                Some(more) => rest = more,
                None => return ApiDescriptor::try_from(pairs).map(Self),
            }
        }
    }
}

/// The first pair of a text, and what follows it: nothing, or a comma and more.
fn first_pair(text: &str) -> Option<(Pair, &str)> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty() && !key.contains(','))?;
    if !value.starts_with('"') {
        let (value, behind) = value.split_at(value.find(',').unwrap_or(value.len()));
        return Some((Pair { key: key.to_owned(), value: value.to_owned() }, behind));
    }
    let mut texts = serde_json::Deserializer::from_str(value).into_iter::<String>();
    let exact = texts.next().and_then(Result::ok)?;
    let behind = value.get(texts.byte_offset()..).unwrap_or_default();
    let is_whole = behind.is_empty() || behind.starts_with(',');
    is_whole.then(|| (Pair { key: key.to_owned(), value: exact }, behind))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_pairs_whose_values_may_be_quoted() {
        for (text, expected) in [
            ("a=b", vec![("a", "b")]),
            ("a=,b=c=d", vec![("a", ""), ("b", "c=d")]),
            (r#"a="x,y=\"z",b=c"#, vec![("a", "x,y=\"z"), ("b", "c")]),
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
}
