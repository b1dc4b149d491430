//! `PUT /rules/{domain}/{path}`: a change of one limit, as a version of its own.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_control::{ControlError, Draft, Files, RulesSource, Version};
use tollgate_rules::config::{EditError, EditedLimit, edit_limit};

use super::{
    error::{ApiError, Invalid},
    extract::{Force, Integer, JsonBody, PathParam, VersionSelector},
    files::{self, RuleFiles},
    limits::Lane,
    response::ApiResult,
    state::Api,
    timeouts, versions,
};
use crate::http::admin::auth::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetLimitRequest {
    /// Keys of `rate_limit`; a null removes a key.
    rate_limit: Map<String, Value>,
    /// The version expected to be active; by default the one that is changed.
    based_on: Option<Integer>,
    comment: String,
    #[serde(default)]
    force: Force,
}

/// Changes the limit of a rule in its file, and makes the files a version.
pub(super) async fn set(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    PathParam((domain, rule)): PathParam<(String, String)>,
    JsonBody(request, _permit): JsonBody<SetLimitRequest>,
) -> ApiResult {
    if request.rate_limit.is_empty() {
        return Err(ApiError::BadRequest("rate_limit: expected a key of `rate_limit`".to_owned()));
    }
    if !api.is_editable() {
        return Err(read_only(&api, domain, rule, &request.rate_limit).await?);
    }
    let SetLimitRequest { rate_limit: keys, based_on, comment, force } = request;
    let (options, change) = (api.parts.options, VersionTerms { based_on, comment, force });
    let edit = move |files: &Files| edit_limit(files, options, (&domain, &rule), &keys);
    versions::created(&make_version(&api, &caller, change, edit).await?)
}

/// A version that changes one limit.
pub(super) struct VersionTerms {
    /// The version expected to be active; by default the one that is changed.
    pub(super) based_on: Option<Integer>,
    pub(super) comment: String,
    pub(super) force: Force,
}

/// Edits the current files, and makes them a version.
pub(super) async fn make_version(
    api: &Arc<Api>,
    caller: &Caller,
    VersionTerms { based_on, comment, force }: VersionTerms,
    edit: impl FnOnce(&Files) -> Result<EditedLimit, EditError> + Send + 'static,
) -> Result<Version, ApiError> {
    let RuleFiles { version, files } = files::read(api, Lane::Write, VersionSelector::Current).await?;
    if let (Some(Integer(expected)), Some(current)) = (based_on, &version)
        && expected != current.number
    {
        return Err(ControlError::Stale { current: Box::new(current.clone()) }.into());
    }
    let edit = move || edit(&files).map(|edited| edited.files);
    let files = Arc::new(api.limits.load(Lane::Write, edit).await?.map_err(rejected)?);
    versions::check(api, &files, force).await?;
    let draft = Draft {
        files: Arc::unwrap_or_clone(files),
        based_on: version.map(|version| version.number),
        rollback_to: None,
        author: caller.name.to_string(),
        comment,
    };
    Ok(timeouts::write(api.parts.control.apply(draft)).await?)
}

fn rejected(error: EditError) -> ApiError {
    match error {
        EditError::NoRule | EditError::NoCandidate => ApiError::NotFound(error.to_string()),
        EditError::Invalid(error) => ApiError::Invalid(Box::new(Invalid::from(&error))),
        EditError::Differs { .. } | EditError::Unsupported { .. } | EditError::Shared { .. } => {
            ApiError::BadRequest(error.to_string())
        }
    }
}

/// The error where rules are changed in their source: its name, the place in it, and the override to set instead.
async fn read_only(
    api: &Arc<Api>,
    domain: String,
    rule: String,
    keys: &Map<String, Value>,
) -> Result<ApiError, ApiError> {
    let Some(source) = source_of(api, &domain, &rule).await? else {
        return Ok(ApiError::NotFound("no active rule of this domain has this path".to_owned()));
    };
    Ok(ApiError::ReadOnly(format!("{source}, or override the limit: {}", override_of(&domain, &rule, keys))))
}

/// Where to change a rule that has no versions; `None` without such a rule.
pub(super) async fn source_of(api: &Arc<Api>, domain: &str, rule: &str) -> Result<Option<String>, ApiError> {
    let (rules, name, path) = (api.parts.rules.load(), domain.to_owned(), rule.to_owned());
    let find = move || {
        let rules = rules?;
        let found = rules.domain(&name)?.root.rules().find(|rule| rule.path() == path)?;
        Some(found.origin.clone())
    };
    let found = api.limits.scan(Lane::Write, find).await?;
    let source = api.parts.status.now().source;
    Ok(found.map(|(file, line)| match source {
        RulesSource::Xds => {
            format!("the rules come from an xDS control plane; change the resource {file} there")
        }
        RulesSource::Directory | RulesSource::Redis | RulesSource::Memory => {
            format!("the rules come from a directory; change {file}:{line} there")
        }
    }))
}

/// The request and the command that set an override with these keys.
pub(super) fn override_of(domain: &str, rule: &str, keys: &Map<String, Value>) -> String {
    let limit: Vec<String> = keys
        .iter()
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key}={text}"),
            value => format!("{key}={value}"),
        })
        .collect();
    let limit = limit.join(" ");
    format!(
        "PUT /api/v1/overrides, or `tollgate override set --domain {domain} --rule {rule} --reason TEXT {limit}`"
    )
}
