//! `/lists`: the allow and deny lists; `/bans`: active bans of counters, which rules with `ban` impose.

use axum::{http::StatusCode, response::IntoResponse as _};
use serde::Deserialize;
use serde_json::json;
use tollgate_control::{
    AutomaticEntry, AutomaticMode, BanFilter, BanPage, BanPosition, BanRemoval, List, ListEntry, ListPair,
    ListedBan, bounds::MAX_BAN_PAGE, check_entry,
};
use tollgate_core::ban::BanMode;
use tollgate_core::descriptor::{Descriptor, Entry, Hits};
use tollgate_limiter::CounterRequests;

use super::extract::{Integer, JsonBody, PathParam, QueryParams, Reason, expires_at, now_ms, page_size};
use super::limits::{self, Lane};
use super::response::{self, ApiError, ApiResult};
use super::{Api, guardrails::violations_of_entry};
use crate::caller::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AddEntryRequest {
    list: List,
    domain: String,
    descriptor: Vec<ListPair>,
    reason: Reason,
    expires_in_s: Option<Integer>,
    #[serde(default)]
    force: bool,
}

/// Lifetime of an exemption that states none: 7 days.
const EXEMPTION_S: u64 = 7 * 86_400;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExemptRequest {
    reason: Reason,
    expires_in_s: Option<Integer>,
}

/// Returns the entries of both lists, and the automatic entries.
pub(super) async fn list(api: Api) -> ApiResult {
    let runtime = limits::read(api.parts.control.runtime()).await?;
    response::json(
        &json!({ "generation": runtime.generation, "entries": runtime.entries, "automatic": runtime.automatic }),
    )
}

/// Adds an entry.
pub(super) async fn add(api: Api, caller: Caller, body: JsonBody<AddEntryRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let created_at_ms = now_ms();
    let entry = ListEntry {
        id: format!("{:016x}", fastrand::u64(..)),
        list: request.list,
        domain: request.domain,
        descriptor: request.descriptor,
        reason: request.reason.0,
        author: caller.name.to_string(),
        created_at_ms,
        expires_at_ms: expires_at(created_at_ms, request.expires_in_s)?,
    };
    let listing = check_entry(&entry).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    if !request.force {
        let violations = api.limits.scan(Lane::Write, move || violations_of_entry(&listing)).await?;
        response::require_force(violations)?;
    }
    limits::write(api.parts.control.put_entry(entry.clone())).await?;
    response::created(&entry)
}

/// Removes an entry; with an automatic one, its ban too.
pub(super) async fn remove(api: Api, caller: Caller, PathParam(id): PathParam<String>) -> ApiResult {
    let control = &api.parts.control;
    let mut is_removed = limits::write(control.remove_entry(&id, &caller.name)).await?;
    if !is_removed && let Some(entry) = limits::read(control.automatic(&id)).await? {
        end_ban_of(&api, &caller, &entry).await?;
        is_removed = limits::write(control.lift_automatic(&entry, &caller.name)).await?;
    }
    response::removed(is_removed, "no list entry has this id")
}

/// Ends the ban for which a client was listed, which would deny it still.
async fn end_ban_of(api: &Api, caller: &Caller, entry: &AutomaticEntry) -> Result<(), ApiError> {
    match entry.mode {
        AutomaticMode::Enforce => end_ban(api, caller, &entry.ban(), BanRemoval::Forgive).await,
        AutomaticMode::Exempt => Ok(()),
    }
}

/// Removes an automatic entry with its ban, and exempts the client from another entry for some time.
pub(super) async fn exempt(
    api: Api,
    caller: Caller,
    PathParam(id): PathParam<String>,
    JsonBody(request, _permit): JsonBody<ExemptRequest>,
) -> ApiResult {
    let lifetime = request.expires_in_s.or(Some(Integer(EXEMPTION_S)));
    let end = expires_at(now_ms(), lifetime)?.unwrap_or_default();
    let control = &api.parts.control;
    let unknown = || ApiError::NotFound("no automatic entry has this id".to_owned());
    let entry = limits::read(control.automatic(&id)).await?.ok_or_else(unknown)?;
    end_ban_of(&api, &caller, &entry).await?;
    let exempted = control.exempt_automatic(entry, &caller.name, &request.reason.0, end);
    response::json(&limits::write(exempted).await?.ok_or_else(unknown)?)
}

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
pub(super) async fn list_bans(api: Api, QueryParams(query): QueryParams<BansQuery>) -> ApiResult {
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
pub(super) async fn remove_ban(
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
    end_ban(&api, &caller, &ban, removal).await?;
    limits::write(api.parts.control.lift_automatic_of(&id, &caller.name)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Ends a ban.
async fn end_ban(api: &Api, caller: &Caller, ban: &ListedBan, removal: BanRemoval) -> Result<(), ApiError> {
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
