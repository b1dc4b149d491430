//! `GET /audit`: who changed what.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use serde_json::json;

use super::{
    answer::{self, Answer},
    parts::Api,
    query::{Asked, amount},
    wait,
};

/// Entries in an answer, unless said, and at the most.
const USUAL: usize = 100;
const MOST: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    before: Option<String>,
    limit: Option<usize>,
}

/// The latest changes.
pub(super) async fn list(State(api): State<Arc<Api>>, Asked(page): Asked<Page>) -> Answer {
    let most = amount(page.limit, USUAL, MOST)?;
    let entries = wait::read(api.parts.control.audit(page.before.as_deref(), most)).await?;
    answer::json(&json!({ "entries": entries }))
}
