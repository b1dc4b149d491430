//! `/versions`: the versions of the rules, applying files as a new one, and rolling back to an earlier one.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::Deserialize;
use serde_json::json;
use tollgate_control::{ControlError, Draft, Files, Version, bounds::check_files};

use super::{
    draft::{self, DraftFiles},
    error::ApiError,
    extract::{Force, Integer, JsonBody, PathParam, QueryParams, VersionSelector, page_size},
    files::{self, RuleFiles},
    guardrails::{self, Traffic},
    limits::Lane,
    response::{self, ApiResult},
    state::Api,
    timeouts,
};
use crate::http::admin::auth::Caller;

const DEFAULT_VERSIONS: usize = 50;
const MAX_VERSIONS: usize = 500;

/// Maximum attempts of a rollback that does not state `based_on`, while concurrent requests make versions.
const ROLLBACK_ATTEMPTS: usize = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionsQuery {
    before: Option<u64>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyRequest {
    /// Required, but may be `null`.
    #[serde(deserialize_with = "Option::deserialize")]
    based_on: Option<Integer>,
    files: DraftFiles,
    comment: String,
    #[serde(default)]
    force: Force,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackRequest {
    based_on: Option<Integer>,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    force: Force,
}

/// Lists the latest versions.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(query): QueryParams<VersionsQuery>,
) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_VERSIONS, MAX_VERSIONS)?;
    let control = &api.parts.control;
    let read = async { Ok((control.current().await?, control.versions(query.before, limit).await?)) };
    let (current, versions) = timeouts::read(read).await?;
    response::json(&json!({ "current": current, "versions": versions }))
}

/// Returns one version with its files.
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    PathParam(selector): PathParam<VersionSelector>,
) -> ApiResult {
    let permit = api.limits.large_response().await?;
    let lane = Lane::Read(&caller);
    let RuleFiles { version, files } = files::read(&api, lane, selector).await?;
    let serialise = move || response::to_vec(&json!({ "version": version, "files": files }));
    let text = api.limits.scan(lane, serialise).await??;
    Ok(response::large(text, permit))
}

/// Makes a version of files, and makes it current.
pub(super) async fn apply(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    JsonBody(request, _permit): JsonBody<ApplyRequest>,
) -> ApiResult {
    api.require_editable()?;
    let files = Arc::new(request.files.0);
    check(&api, &files, request.force).await?;
    let draft = Draft {
        files: Arc::unwrap_or_clone(files),
        based_on: request.based_on.map(|Integer(number)| number),
        rollback_to: None,
        author: caller.name.to_string(),
        comment: request.comment,
    };
    created(&timeouts::write(api.parts.control.apply(draft)).await?)
}

/// Makes the files of an earlier version current again.
pub(super) async fn rollback(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    PathParam(number): PathParam<u64>,
    JsonBody(request, _permit): JsonBody<RollbackRequest>,
) -> ApiResult {
    api.require_editable()?;
    let files = Arc::new(files::read(&api, Lane::Write, VersionSelector::Number(number)).await?.files);
    let mut attempts = if request.based_on.is_some() { 1 } else { ROLLBACK_ATTEMPTS };
    loop {
        check(&api, &files, request.force).await?;
        let based_on = match request.based_on {
            Some(Integer(number)) => Some(number),
            None => timeouts::read(api.parts.control.current()).await?,
        };
        let draft = Draft {
            files: Files::clone(&files),
            based_on,
            rollback_to: Some(number),
            author: caller.name.to_string(),
            comment: request.comment.clone(),
        };
        attempts = attempts.saturating_sub(1);
        match timeouts::write(api.parts.control.apply(draft)).await {
            Err(ControlError::Stale { .. }) if attempts > 0 => {}
            applied => return created(&applied?),
        }
    }
}

fn created(version: &Version) -> ApiResult {
    response::created(&json!({ "version": version }))
}

/// Checks that files may become current: they are valid, and pass the guardrails.
async fn check(api: &Api, files: &Arc<Files>, force: Force) -> Result<(), ApiError> {
    let (options, files) = (api.parts.options, Arc::clone(files));
    let compared = match force {
        Force::On => None,
        Force::Off => {
            Some((files::current_rules(api, Lane::Write).await?, Traffic::of_all_instances(api).await?))
        }
    };
    let checked = api.limits.load(Lane::Write, move || {
        check_files(&files)?;
        let loaded = draft::load_valid(&files, options)?;
        let violations = compared
            .map(|(current, traffic)| guardrails::violations(current.as_deref(), &loaded.rules, &traffic));
        match violations.unwrap_or_default() {
            violations if violations.is_empty() => Ok(()),
            violations => Err(ApiError::NeedsForce(violations)),
        }
    });
    checked.await?
}
