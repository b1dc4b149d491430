//! Requests: extractors of JSON bodies, query and path parameters, and the types of fields that requests share.

use std::{fmt, time::Duration};

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::{body::BodyDataStream, http::request::Parts};
use futures_util::StreamExt as _;
use serde::de::{DeserializeOwned, Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::{task::spawn_blocking, time::timeout};
use tollgate_control::bounds::{MAX_TEXT_BYTES, MAX_VERSION_BYTES};
use tollgate_control::{ListPair, Pair, parse_pairs};
use tollgate_core::descriptor::{Descriptor, Entry, Hits};
use tollgate_serve::{http::origin::is_json, service::RequestBounds};

use super::limits::{ApiPermit, Lane};
use super::{Api, response::ApiError};
use crate::caller::Caller;

pub(super) use tollgate_core::clock::now_ms;

/// Maximum bytes of a body: the files of the largest version, escaped to three times their size, and the other fields.
const MAX_BODY_BYTES: usize = 3 * MAX_VERSION_BYTES + SMALL_BODY_BYTES;

/// Bytes up to which a body needs no permit.
const SMALL_BODY_BYTES: usize = 64 << 10;

/// Time limit for receiving a body that holds a permit, which other requests wait for.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A JSON body without unknown fields, and the permit to hold while any part of a large one is in memory. The required
/// `Content-Type` keeps out requests that pages of other origins can send.
#[derive(Debug)]
pub(super) struct JsonBody<T>(pub(super) T, pub(super) Option<ApiPermit>);

/// Extension of requests that change something.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteRequest;

/// Whether a body has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyRest {
    Ended,
    More,
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            return Err(ApiError::ContentType);
        }
        let (parts, body) = request.into_parts();
        let caller = parts.extensions.get::<Caller>().ok_or(ApiError::Unauthorized)?;
        let is_write = parts.extensions.get::<WriteRequest>().is_some();
        let lane = if is_write { Lane::Write } else { Lane::Read(caller) };
        let (mut chunks, mut text) = (body.into_data_stream(), Vec::new());
        if fill(&mut chunks, &mut text, SMALL_BODY_BYTES).await? == BodyRest::Ended {
            return parse(&text).map(|value| Self(value, None));
        }
        // Until here a client that stops sending delays no other one.
        let permit = api.limits.large_body(lane).await?;
        let filled = timeout(RECEIVE_TIMEOUT, fill(&mut chunks, &mut text, MAX_BODY_BYTES)).await;
        if filled.map_err(|_| ApiError::Slow(RECEIVE_TIMEOUT))?? == BodyRest::More {
            drop(permit);
            let _ = timeout(RECEIVE_TIMEOUT, discard(chunks)).await;
            return Err(ApiError::TooLarge(MAX_BODY_BYTES));
        }
        let parsed = spawn_blocking(move || parse(&text).map(|value| Self(value, Some(permit))));
        parsed.await.map_err(|_| ApiError::Internal)?
    }
}

/// Appends chunks until there are more than `max` bytes, or the body ends.
async fn fill(chunks: &mut BodyDataStream, text: &mut Vec<u8>, max: usize) -> Result<BodyRest, ApiError> {
    while text.len() <= max {
        let Some(chunk) = chunks.next().await else { return Ok(BodyRest::Ended) };
        let chunk = chunk.map_err(|_| ApiError::BadRequest("incomplete body".to_owned()))?;
        text.extend_from_slice(&chunk);
    }
    Ok(BodyRest::More)
}

/// Reads and drops the rest of a body that is too large, up to as much again: a client that is still sending when the
/// connection closes does not receive the error.
async fn discard(mut chunks: BodyDataStream) {
    let mut max = MAX_BODY_BYTES;
    while let Some(Ok(chunk)) = chunks.next().await {
        let Some(rest) = max.checked_sub(chunk.len()) else { return };
        max = rest;
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(text).map_err(|error| ApiError::BadRequest(error.to_string()))
}

/// Query parameters. Unknown ones are refused by the types, which deny unknown fields.
#[derive(Debug)]
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|error| ApiError::BadRequest(error.body_text()))
    }
}

/// A path parameter.
#[derive(Debug)]
pub(super) struct PathParam<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParam<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path)).map_err(|error| ApiError::BadRequest(error.body_text()))
    }
}

/// A page of a log: at most `limit` items before the one with the id `before`, newest first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    pub(super) before: Option<String>,
    limit: Option<usize>,
}

impl LogQuery {
    /// The number of items to return.
    pub(super) fn limit(&self) -> Result<usize, ApiError> {
        page_size(self.limit, 100, 1_000)
    }
}

/// Rules of a domain, or of all, and with a path, or with any.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleQuery {
    domain: Option<String>,
    rule: Option<String>,
}

impl RuleQuery {
    pub(super) fn selects(&self, domain: &str, rule: &str) -> bool {
        self.domain.as_deref().is_none_or(|wanted| wanted == domain)
            && self.rule.as_deref().is_none_or(|wanted| wanted == rule)
    }
}

/// A version: by its number, or the current one.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(super) enum VersionSelector {
    Current,
    Number(u64),
}

impl TryFrom<String> for VersionSelector {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        match text.as_str() {
            "current" => Ok(Self::Current),
            // No sign, no leading zeros: each number has one notation.
            number => match number.parse::<u64>() {
                Ok(parsed) if parsed.to_string() == number => Ok(Self::Number(parsed)),
                _ => Err("expected a version number or `current`"),
            },
        }
    }
}

/// The number of items to return: `requested`, or `default` without it; from 1 to `max`.
pub(super) fn page_size(requested: Option<usize>, default: usize, max: usize) -> Result<usize, ApiError> {
    match requested {
        None => Ok(default),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(_) => Err(ApiError::BadRequest(format!("limit: expected a number from 1 to {max}"))),
    }
}

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
                if number.fract() == 0.0 && (0.0..=MAX_EXACT_FLOAT).contains(&number) {
                    return Ok(Integer(number as u64));
                }
                Err(E::custom("expected a non-negative integer"))
            }
        }
        deserializer.deserialize_any(IntegerVisitor)
    }
}

/// Maximum bytes of keys and values of all descriptors of a request: each may be matched against thousands of regular
/// expressions.
const MAX_TOTAL_BYTES: usize = 64 << 10;

/// A descriptor of an API request, within the bounds of a gRPC request's descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Vec<Pair>")]
pub(super) struct ApiDescriptor(pub(super) Vec<Pair>);

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

    /// Checks the number of entries and their sizes.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        let RequestBounds { max_entries, max_text_bytes, .. } = RequestBounds::default();
        let is_short = |pair: &Pair| pair.key.len().max(pair.value.len()) <= max_text_bytes;
        let problem = if self.0.len() > max_entries {
            format!("{} entries; expected 1 to {max_entries}", self.0.len())
        } else if !self.0.iter().all(is_short) {
            format!("a key or value is too long; expected at most {max_text_bytes} bytes")
        } else {
            return Ok(());
        };
        Err(ApiError::BadRequest(problem))
    }
}

/// Checks the number of descriptors, from 1 to the maximum of a gRPC request, and their total size.
pub(super) fn check_descriptors(descriptors: &[ApiDescriptor]) -> Result<(), ApiError> {
    let max = RequestBounds::default().max_descriptors;
    if !(1..=max).contains(&descriptors.len()) {
        return Err(ApiError::BadRequest(format!("descriptors: expected 1 to {max}")));
    }
    descriptors.iter().try_for_each(ApiDescriptor::check)?;
    let pairs = descriptors.iter().flat_map(|ApiDescriptor(pairs)| pairs);
    let bytes: usize = pairs.map(|Pair { key, value }| key.len() + value.len()).sum();
    if bytes <= MAX_TOTAL_BYTES {
        return Ok(());
    }
    Err(ApiError::BadRequest(format!("descriptors: expected at most {MAX_TOTAL_BYTES} bytes")))
}

/// The caller of a request, which the authentication has added.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get().cloned().ok_or(ApiError::Unauthorized)
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
    fn the_bounds_are_those_of_requests() {
        let check = |entries, bytes| {
            let pair = Pair { key: "k".into(), value: "v".repeat(bytes) };
            ApiDescriptor::try_from(vec![pair; entries]).expect("valid").check()
        };
        assert!(check(264, 1).is_ok() && check(1, 131_072).is_ok());
        assert!(check(265, 1).is_err() && check(1, 131_073).is_err());
    }
}
