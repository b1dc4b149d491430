//! JSON responses.

use axum::{
    body::{Body, Bytes},
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{error::ApiError, limits::ApiPermit};

/// Result of an API handler.
pub(super) type ApiResult = Result<Response, ApiError>;

/// A 200 response.
pub(super) fn json(value: &impl Serialize) -> ApiResult {
    Ok(respond(StatusCode::OK, Bytes::from(to_vec(value)?)))
}

/// A 201 response.
pub(super) fn created(value: &impl Serialize) -> ApiResult {
    Ok(respond(StatusCode::CREATED, Bytes::from(to_vec(value)?)))
}

/// Serialises a value.
pub(super) fn to_vec(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "failed to serialise an API response");
        ApiError::Internal
    })
}

fn respond(status: StatusCode, body: Bytes) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, Body::from(body)).into_response()
}

/// A large body that holds its permit until it is sent or dropped: clients that do not read keep few of them in memory.
struct LargeBody {
    text: Vec<u8>,
    _permit: ApiPermit,
}

impl AsRef<[u8]> for LargeBody {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// A 200 response of serialised JSON, which holds `permit` until it is sent.
pub(super) fn large(text: Vec<u8>, permit: ApiPermit) -> Response {
    respond(StatusCode::OK, Bytes::from_owner(LargeBody { text, _permit: permit }))
}
