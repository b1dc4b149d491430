//! `GET /history` and `GET /top`: the last minutes of this instance.

use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::{
    answer::{self, Answer},
    error::ApiError,
    query::{Asked, amount},
};
use crate::{http::history, top};

/// Keys of each domain in an answer, unless said, and at the most.
const USUAL: usize = 10;
const MOST: usize = 100;

/// Seconds that the keys are of.
const WINDOW_S: u64 = 60;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Talkers {
    domain: Option<String>,
    limit: Option<usize>,
}

/// What was decided within the last 15 minutes.
pub(super) async fn show() -> Answer {
    answer::json(&history::history())
}

/// Who asks the most, and who is denied the most.
pub(super) async fn top(Asked(asked): Asked<Talkers>) -> Answer {
    let most = amount(asked.limit, USUAL, MOST)?;
    // It takes up to a millisecond for each domain.
    let domains = spawn_blocking(move || top::report(asked.domain.as_deref(), most)).await;
    let domains = domains.map_err(|_| ApiError::Broken)?;
    answer::json(&json!({ "window_s": WINDOW_S, "domains": domains }))
}
