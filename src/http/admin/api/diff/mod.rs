//! `GET /versions/{n}/diff` and `POST /diff`: differences between sets of files, and between the rules in them.

mod files;
mod rules;

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::{Deserialize, Serialize};
use tollgate_control::Files;
use tollgate_rules::{Rules, config::Options};

use self::files::FilePatch;
pub(crate) use self::rules::RuleChange;
use super::{
    draft::{self, DraftFiles},
    extract::{Integer, JsonBody, PathParam, QueryParams, VersionSelector},
    files::{self as rule_files, RuleFiles},
    limits::{ApiPermit, Lane},
    response::{self, ApiResult},
    state::Api,
};
use crate::http::admin::auth::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffQuery {
    against: Option<VersionSelector>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftDiffRequest {
    files: DraftFiles,
    against: Option<Integer>,
}

/// Differences between two sets of files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DiffResponse {
    from: Option<u64>,
    to: Option<u64>,
    pub(crate) files: Vec<FilePatch>,
    pub(crate) rules: Vec<RuleChange>,
    /// Reason that the rules are not compared, if they are not.
    pub(crate) problem: Option<String>,
}

/// Whether something was added, removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Change {
    Added,
    Removed,
    Changed,
}

impl Change {
    /// The change of something that existed before, after, or both.
    const fn of(before: bool, after: bool) -> Self {
        match (before, after) {
            (false, _) => Self::Added,
            (true, false) => Self::Removed,
            (true, true) => Self::Changed,
        }
    }
}

/// Compares a version with another one, by default the one that it is based on.
pub(super) async fn versions(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    PathParam(to): PathParam<VersionSelector>,
    QueryParams(query): QueryParams<DiffQuery>,
) -> ApiResult {
    let permit = api.limits.large_response().await?;
    let lane = Lane::Read(&caller);
    let to = rule_files::read(&api, lane, to).await?;
    let based_on = to.version.as_ref().and_then(|version| version.based_on);
    let from = match query.against.or(based_on.map(VersionSelector::Number)) {
        Some(from) => rule_files::read(&api, lane, from).await?,
        // The first version is based on nothing.
        None => RuleFiles { version: None, files: Files::new() },
    };
    respond(&api, lane, from, to, permit).await
}

/// Compares files of the request with a version, by default the current one.
pub(super) async fn draft(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    JsonBody(request, _permit): JsonBody<DraftDiffRequest>,
) -> ApiResult {
    let permit = api.limits.large_response().await?;
    let lane = Lane::Read(&caller);
    let against =
        request.against.map_or(VersionSelector::Current, |Integer(number)| VersionSelector::Number(number));
    let from = rule_files::read(&api, lane, against).await?;
    let to = RuleFiles { version: None, files: request.files.0 };
    respond(&api, lane, from, to, permit).await
}

async fn respond(api: &Api, lane: Lane<'_>, from: RuleFiles, to: RuleFiles, permit: ApiPermit) -> ApiResult {
    let options = api.parts.options;
    let text = api.limits.load(lane, move || response::to_vec(&compare(&from, &to, options)));
    Ok(response::large(text.await??, permit))
}

fn compare(from: &RuleFiles, to: &RuleFiles, options: Options) -> DiffResponse {
    let files = files::patches(&from.files, &to.files);
    let loaded = load_both(&from.files, &to.files, options);
    let (rules, problem) = match loaded.map(|(from, to)| rules::changes(&from, &to)) {
        Ok(rules) => (rules, None),
        Err(report) => (Vec::new(), Some(report)),
    };
    DiffResponse { from: from.number(), to: to.number(), files, rules, problem }
}

fn load_both(from: &Files, to: &Files, options: Options) -> Result<(Rules, Rules), String> {
    let load = |files: &Files| draft::load(files, options).map(|loaded| loaded.rules);
    let both = load(from).and_then(|from| Ok((from, load(to)?)));
    both.map_err(|invalid| invalid.report)
}
