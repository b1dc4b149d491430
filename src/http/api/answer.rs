//! Answers in JSON.

use axum::{
    body::{Body, Bytes},
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{error::ApiError, heavy::Turn};

/// What a call answers, or why it does not.
pub(super) type Answer = Result<Response, ApiError>;

/// A value as an answer.
pub(super) fn json(value: &impl Serialize) -> Answer {
    json_with(StatusCode::OK, value)
}

/// A value that was made.
pub(super) fn created(value: &impl Serialize) -> Answer {
    json_with(StatusCode::CREATED, value)
}

fn json_with(status: StatusCode, value: &impl Serialize) -> Answer {
    respond(status, Bytes::from(text(value)?))
}

/// A value as text.
pub(super) fn text(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::error!("an answer can't be written: {error}");
        ApiError::Broken
    })
}

fn respond(status: StatusCode, body: Bytes) -> Answer {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    Ok((status, headers, Body::from(body)).into_response())
}

/// A large text, whose turn ends when it is taken or given up: clients that take nothing hold few of them.
struct Large {
    text: Vec<u8>,
    _turn: Turn,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// A large text in JSON, whose turn lasts as long as it is held.
pub(super) fn large(text: Vec<u8>, turn: Turn) -> Answer {
    respond(StatusCode::OK, Bytes::from_owner(Large { text, _turn: turn }))
}
