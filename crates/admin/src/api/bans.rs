//! `/bans`: active bans of counters, which rules with `ban` impose.

use axum::{http::StatusCode, response::IntoResponse as _};
use serde::Deserialize;
use serde_json::json;
use tollgate_control::{BanFilter, BanPage, BanPosition, BanRemoval, ListedBan, bounds::MAX_BAN_PAGE};
use tollgate_core::ban::BanMode;
use tollgate_core::descriptor::{Descriptor, Entry, Hits};
use tollgate_limiter::CounterRequests;

use super::Api;
use super::extract::{PathParam, QueryParams, page_size};
use super::limits::{self, Lane};
use super::response::{self, ApiError, ApiResult};
use crate::caller::Caller;

const DEFAULT_BANS: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BansQuery {
    domain: Option<String>,
    mode: Option<BanMode>,
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
pub(super) async fn list(api: Api, QueryParams(query): QueryParams<BansQuery>) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_BANS, MAX_BAN_PAGE)?;
    let after = query.before.map(|text| BanPosition::read(&text));
    let filter = BanFilter { domain: query.domain.as_deref(), mode: query.mode };
    let page = match after {
        // Nothing follows an unknown position, as in the audit log.
        Some(None) => BanPage::default(),
        after => limits::read(api.parts.control.bans(filter, after.flatten(), limit)).await?,
    };
    response::json(&json!({ "bans": page.bans, "next": page.next.map(|next| next.to_string()) }))
}

/// Lifts a ban: the client is limited by the rule again.
pub(super) async fn remove(
    api: Api,
    caller: Caller,
    PathParam(id): PathParam<String>,
    QueryParams(RemovalQuery { forgive }): QueryParams<RemovalQuery>,
) -> ApiResult {
    let control = &api.parts.control;
    let unknown = || ApiError::NotFound("no active ban has this id".to_owned());
    let ban = limits::read(control.ban(&id)).await?.ok_or_else(unknown)?;
    if ban.is_truncated {
        let message = "the descriptor of this ban is known only in part; reset its counter instead";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    let removal = if forgive { BanRemoval::Forgive } else { BanRemoval::Lift };
    end(&api, &caller, &ban, removal).await?;
    limits::write(api.parts.control.lift_automatic_of(&id, &caller.name)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Ends a ban.
pub(super) async fn end(
    api: &Api,
    caller: &Caller,
    ban: &ListedBan,
    removal: BanRemoval,
) -> Result<(), ApiError> {
    let control = &api.parts.control;
    let requests = lifts(api, ban, removal == BanRemoval::Forgive).await?;
    // Before the change: no change without a record.
    limits::write(control.record_ban_removal(&caller.name, ban, removal, "")).await?;
    if let Some(requests) = requests {
        let readings = api.parts.counters.send(&requests).await;
        readings.into_iter().flatten().try_for_each(|reading| reading.map(drop))?;
    }
    limits::write(control.remove_ban(&ban.id)).await?;
    Ok(())
}

/// Returns the request that lifts the ban; `None` if its rule is not active any more, so that the ban denies nothing.
async fn lifts(api: &Api, ban: &ListedBan, forgive: bool) -> Result<Option<CounterRequests>, ApiError> {
    let (shared, ban) = (api.clone(), ban.clone());
    let requests = api.limits.scan(Lane::Write, move || {
        let (active, overridden) = shared.parts.rules.load_overridden()?;
        let domain = active.domain(&ban.domain)?;
        let entries = ban.descriptor.iter().map(|pair| Entry { key: &pair.key, value: &pair.value });
        let descriptor = Descriptor { entries: entries.collect(), limit: None, hits: Hits::Peek };
        let rule = domain.root.limits(&descriptor.entries).find(|rule| rule.path() == ban.rule)?;
        Some(shared.parts.counters.lifts(domain, &overridden, rule, descriptor, forgive))
    });
    requests.await
}
