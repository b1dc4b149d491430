//! `GET /audit`: the log of changes.

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

const DEFAULT_ENTRIES: usize = 100;
const MAX_ENTRIES: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    before: Option<String>,
    limit: Option<usize>,
}

/// Lists the latest changes.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(query): QueryParams<AuditQuery>,
) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_ENTRIES, MAX_ENTRIES)?;
    let entries = timeouts::read(api.parts.control.audit(query.before.as_deref(), limit)).await?;
    response::json(&json!({ "entries": entries }))
}
