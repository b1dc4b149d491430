//! `/lists`: who is let pass, and who is denied.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::IntoResponse as _};
use serde::Deserialize;
use serde_json::json;

use super::{
    answer::{self, Answer},
    body::Body,
    error::ApiError,
    parts::Api,
    query::Named,
    reason::{self, Reason},
    wait,
    whole::Whole,
};
use crate::{
    control::{List, ListEntry, Pair, check_entry},
    http::access::Caller,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Add {
    list: List,
    domain: String,
    descriptor: Vec<Pair>,
    reason: Reason,
    expires_in_s: Option<Whole>,
}

/// Both lists.
pub(super) async fn list(State(api): State<Arc<Api>>) -> Answer {
    let runtime = wait::read(api.parts.control.runtime()).await?;
    answer::json(&json!({ "generation": runtime.generation, "entries": runtime.entries }))
}

/// Adds an entry.
pub(super) async fn add(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Add>,
) -> Answer {
    let created_at_ms = reason::now_ms();
    let entry = ListEntry {
        id: format!("{:016x}", fastrand::u64(..)),
        list: asked.list,
        domain: asked.domain,
        descriptor: asked.descriptor,
        reason: asked.reason.0,
        author: caller.name.to_string(),
        created_at_ms,
        expires_at_ms: reason::end(created_at_ms, asked.expires_in_s)?,
    };
    check_entry(&entry).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    wait::write(api.parts.control.put_entry(entry.clone())).await?;
    answer::created(&entry)
}

/// Removes an entry.
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<String>,
) -> Answer {
    match wait::write(api.parts.control.remove_entry(&id, &caller.name)).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(ApiError::NotFound("there is no entry with this id".to_owned())),
    }
}
