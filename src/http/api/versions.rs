//! `GET /versions` and `GET /versions/{n|current}`.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::Deserialize;
use serde_json::json;

use super::{
    answer::{self, Answer},
    current::Found,
    heavy::Lane,
    parts::Api,
    query::{Asked, Named, Which, amount},
    wait,
};
use crate::http::access::Caller;

/// Versions in an answer, unless said, and at the most.
const USUAL: usize = 50;
const MOST: usize = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    before: Option<u64>,
    limit: Option<usize>,
}

/// The latest versions.
pub(super) async fn list(State(api): State<Arc<Api>>, Asked(page): Asked<Page>) -> Answer {
    let most = amount(page.limit, USUAL, MOST)?;
    let control = &api.parts.control;
    let read = async { Ok((control.current().await?, control.versions(page.before, most).await?)) };
    let (current, versions) = wait::read(read).await?;
    answer::json(&json!({ "current": current, "versions": versions }))
}

/// One version with its files.
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Named(which): Named<Which>,
) -> Answer {
    let turn = api.turns.answer().await?;
    let lane = Lane::Look(&caller);
    let Found { version, files } = api.files(lane, which).await?;
    let text = api.turns.look(lane, move || answer::text(&json!({ "version": version, "files": files })));
    answer::large(text.await??, turn)
}
