//! `/lists`: the allow and deny lists.

use std::future::ready;

use serde::Deserialize;
use serde_json::json;
use tollgate_control::{AutomaticEntry, AutomaticMode, BanRemoval, List, ListEntry, ListPair, check_entry};

use super::bans;
use super::extract::{Integer, JsonBody, PathParam, Reason, expires_at, now_ms};
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
    let runtime = limits::read(ready(api.parts.control.runtime())).await?;
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
        AutomaticMode::Enforce => bans::end(api, caller, &entry.ban(), BanRemoval::Forgive).await,
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
