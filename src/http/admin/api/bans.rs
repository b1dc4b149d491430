//! `/bans`: active bans of counters, which rules with `ban` impose.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::json;
use tollgate_control::{ListedBanMode, BanFilter, BanPage, BanPosition, BanRemoval, bounds::MAX_BAN_PAGE};

use super::{
    counters,
    error::ApiError,
    extract::{PathParam, QueryParams, page_size},
    response::{self, ApiResult},
    state::Api,
    timeouts,
};
use crate::http::admin::auth::Caller;

const DEFAULT_BANS: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BansQuery {
    domain: Option<String>,
    mode: Option<ListedBanMode>,
    before: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemovalQuery {
    #[serde(default)]
    forgive: bool,
}

/// Lists active bans, the latest end first.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(query): QueryParams<BansQuery>,
) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_BANS, MAX_BAN_PAGE)?;
    let after = query.before.map(|text| BanPosition::read(&text));
    let filter = BanFilter { domain: query.domain.as_deref(), mode: query.mode };
    let page = match after {
        // Nothing follows an unknown position, as in the audit log.
        Some(None) => BanPage::default(),
        after => timeouts::read(api.parts.control.bans(filter, after.flatten(), limit)).await?,
    };
    response::json(&json!({ "bans": page.bans, "next": page.next.map(|next| next.to_string()) }))
}

/// Lifts a ban: the client is limited by the rule again.
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    PathParam(id): PathParam<String>,
    QueryParams(query): QueryParams<RemovalQuery>,
) -> Result<Response, ApiError> {
    let control = &api.parts.control;
    let unknown = || ApiError::NotFound("no active ban has this id".to_owned());
    let ban = timeouts::read(control.ban(&id)).await?.ok_or_else(unknown)?;
    let removal = if query.forgive { BanRemoval::Forgive } else { BanRemoval::Lift };
    counters::remove_ban(&api, &caller, &ban, removal).await?;
    timeouts::write(control.remove_ban(&id)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
