//! `GET /history` and `GET /top`: decisions and top talkers of the last minutes on this instance.

use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;
use tollgate_limiter::talkers;

use super::{
    error::ApiError,
    extract::{QueryParams, page_size},
    response::{self, ApiResult},
};
use crate::http::history;

const DEFAULT_KEYS: usize = 10;
/// Maximum keys of each domain in a response.
const MAX_KEYS: usize = 100;

/// Length of the sampling window, in seconds.
const WINDOW_S: u64 = 60;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TalkersQuery {
    domain: Option<String>,
    limit: Option<usize>,
}

/// Returns the decisions of the last 15 minutes.
pub(super) async fn history() -> ApiResult {
    response::json(&history::history())
}

/// Returns the keys with the most hits and the most denied hits.
pub(super) async fn top(QueryParams(query): QueryParams<TalkersQuery>) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_KEYS, MAX_KEYS)?;
    // The report takes up to a millisecond for each domain.
    let domains = spawn_blocking(move || talkers::report(query.domain.as_deref(), limit)).await;
    let domains = domains.map_err(|_| ApiError::Internal)?;
    response::json(&json!({ "window_s": WINDOW_S, "domains": domains }))
}
