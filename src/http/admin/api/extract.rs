//! Extractors: JSON bodies, query and path parameters.

use std::time::Duration;

use axum::{
    body::BodyDataStream,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::request::Parts,
};
use futures_util::StreamExt as _;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{task::spawn_blocking, time::timeout};
use tollgate_control::bounds::MAX_VERSION_BYTES;

use super::{
    Api,
    limits::{ApiPermit, Lane},
    response::ApiError,
};
use crate::http::{admin::auth::Caller, origin::is_json};

/// Maximum bytes of a body: the files of the largest version, escaped to three times their size, and the other fields.
pub(super) const MAX_BODY_BYTES: usize = 3 * MAX_VERSION_BYTES + SMALL_BODY_BYTES;

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
            return Err(ApiError::TooLarge);
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
