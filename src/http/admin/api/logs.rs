//! `GET /audit` and `GET /events`: the log of changes, and the log of events.

use std::sync::Arc;

use axum::extract::State;
use serde_json::json;

use super::{
    extract::{LogQuery, QueryParams},
    response::{self, ApiResult},
    state::Api,
    timeouts,
};

/// Lists the latest changes.
pub(super) async fn audit(
    State(api): State<Arc<Api>>,
    QueryParams(query): QueryParams<LogQuery>,
) -> ApiResult {
    let entries = api.parts.control.audit(query.before.as_deref(), query.limit()?);
    response::json(&json!({ "entries": timeouts::read(entries).await? }))
}

/// Lists the latest events of all instances.
pub(super) async fn events(
    State(api): State<Arc<Api>>,
    QueryParams(query): QueryParams<LogQuery>,
) -> ApiResult {
    let events = api.parts.control.events(query.before.as_deref(), query.limit()?);
    response::json(&json!({ "events": timeouts::read(events).await? }))
}
