//! `GET /events`: the log of events.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use serde_json::json;

use super::{
    extract::{QueryParams, page_size},
    response::{self, ApiResult},
    state::Api,
    timeouts,
};

const DEFAULT_EVENTS: usize = 100;
const MAX_EVENTS: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    before: Option<String>,
    limit: Option<usize>,
}

/// Lists the latest events of all instances.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(query): QueryParams<EventsQuery>,
) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_EVENTS, MAX_EVENTS)?;
    let events = timeouts::read(api.parts.control.events(query.before.as_deref(), limit)).await?;
    response::json(&json!({ "events": events }))
}
