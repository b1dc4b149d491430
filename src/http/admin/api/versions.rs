//! `/versions`: the versions of the rules, applying files as a new one, and rolling back to an earlier one.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use tollgate_control::{ControlError, Draft, Files, Version, bounds::check_files};

use super::{
    Api,
    extract::{JsonBody, PathParam, QueryParams, VersionSelector, page_size},
    fields::Integer,
    files::{self, DraftFiles, RuleFiles},
    guardrails::{self, Traffic},
    limits::{self, Lane},
    response::{self, ApiError, ApiResult, Invalid, ProblemView},
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
    force: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackRequest {
    based_on: Option<Integer>,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    force: bool,
}

/// Lists the latest versions.
pub(super) async fn list(api: Api, QueryParams(query): QueryParams<VersionsQuery>) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_VERSIONS, MAX_VERSIONS)?;
    let control = &api.parts.control;
    let read = async { Ok((control.current().await?, control.versions(query.before, limit).await?)) };
    let (current, versions) = limits::read(read).await?;
    response::json(&json!({ "current": current, "versions": versions }))
}

/// Returns one version with its files.
pub(super) async fn show(api: Api, caller: Caller, selector: PathParam<VersionSelector>) -> ApiResult {
    let PathParam(selector) = selector;
    let permit = api.limits.large_response().await?;
    let lane = Lane::Read(&caller);
    let RuleFiles { version, files } = files::read(&api, lane, selector).await?;
    let serialise = move || response::to_vec(&json!({ "version": version, "files": files }));
    let text = api.limits.scan(lane, serialise).await??;
    Ok(response::large(text, permit))
}

/// Makes a version of files, and makes it current.
pub(super) async fn apply(api: Api, caller: Caller, body: JsonBody<ApplyRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
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
    created(&limits::write(api.parts.control.apply(draft)).await?)
}

/// Makes the files of an earlier version current again.
pub(super) async fn rollback(
    api: Api,
    caller: Caller,
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
            None => limits::read(api.parts.control.current()).await?,
        };
        let draft = Draft {
            files: Files::clone(&files),
            based_on,
            rollback_to: Some(number),
            author: caller.name.to_string(),
            comment: request.comment.clone(),
        };
        attempts -= 1;
        match limits::write(api.parts.control.apply(draft)).await {
            Err(ControlError::Stale { .. }) if attempts > 0 => {}
            applied => return created(&applied?),
        }
    }
}

fn created(version: &Version) -> ApiResult {
    response::created(&json!({ "version": version }))
}

/// Checks that files may become current: they are valid, and pass the guardrails.
async fn check(api: &Api, files: &Arc<Files>, force: bool) -> Result<(), ApiError> {
    let (options, files) = (api.parts.options, Arc::clone(files));
    let compared = match force {
        true => None,
        false => Some((files::current_rules(api, Lane::Write).await?, Traffic::of_all_instances(api).await?)),
    };
    let checked = api.limits.load(Lane::Write, move || {
        check_files(&files)?;
        let loaded = files::load_valid(&files, options)?;
        let violations = compared
            .map(|(current, traffic)| guardrails::violations(current.as_deref(), &loaded.rules, &traffic));
        match violations.unwrap_or_default() {
            violations if violations.is_empty() => Ok(()),
            violations => Err(ApiError::NeedsForce(violations)),
        }
    });
    checked.await?
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateRequest {
    files: DraftFiles,
}

/// Returns the report of `tollgate check` and the guardrails that applying these files would violate.
pub(super) async fn validate(api: Api, caller: Caller, body: JsonBody<ValidateRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let (options, files) = (api.parts.options, request.files.0);
    let (lane, has_versions) = (Lane::Read(&caller), api.has_versions());
    // The control store may be down. Then the active rules and the traffic of this instance stand in.
    let current = match files::current_rules(&api, lane).await {
        Ok(rules) => rules,
        Err(_) => api.parts.rules.load(),
    };
    let traffic = match Traffic::of_all_instances(&api).await {
        Ok(traffic) => traffic,
        Err(_) => Traffic::of_this_instance().await?,
    };
    let load = if has_versions { files::load_version } else { files::load };
    let validated = api.limits.load(lane, move || match load(&files, options) {
        Ok(loaded) => {
            let problems: Vec<_> = loaded.warnings.problems().iter().map(ProblemView::from).collect();
            json!({
                "is_valid": true,
                "domains": loaded.rules.domains().count(),
                "rules": loaded.rules.rule_count(),
                "problems": problems,
                "report": loaded.report(),
                "reasons": guardrails::violations(current.as_deref(), &loaded.rules, &traffic),
            })
        }
        Err(Invalid { problems, report }) => json!({
            "is_valid": false, "domains": 0, "rules": 0, "problems": problems, "report": report, "reasons": [],
        }),
    });
    response::json(&validated.await?)
}
