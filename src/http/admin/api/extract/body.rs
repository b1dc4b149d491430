//! JSON request bodies.

use std::{sync::Arc, time::Duration};

use axum::{
    body::BodyDataStream,
    extract::{FromRequest, Request},
};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use tokio::{task::spawn_blocking, time::timeout};
use tollgate_control::bounds::MAX_VERSION_BYTES;

use crate::http::{
    admin::{
        api::{
            error::ApiError,
            limits::{ApiPermit, Lane},
            state::Api,
        },
        auth::Caller,
    },
    origin::is_json,
};

/// Maximum bytes of a body: the files of the largest version, escaped to three times their size, and the other fields.
pub(in crate::http::admin::api) const MAX_BODY_BYTES: usize = 3 * MAX_VERSION_BYTES + SMALL_BODY_BYTES;

/// Bytes up to which a body needs no permit.
const SMALL_BODY_BYTES: usize = 64 << 10;

/// Time limit for receiving a body that holds a permit, which other requests wait for.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A JSON body without unknown fields, and the permit to hold while any part of a large one is in memory. The required
/// `Content-Type` keeps out requests that pages of other origins can send.
#[derive(Debug)]
pub(in crate::http::admin::api) struct JsonBody<T>(
    pub(in crate::http::admin::api) T,
    pub(in crate::http::admin::api) Option<ApiPermit>,
);

/// Extension of requests that change something.
#[derive(Clone, Copy, Debug)]
pub(in crate::http::admin::api) struct WriteRequest;

/// Whether a body has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyRest {
    Ended,
    More,
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<Api>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
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
