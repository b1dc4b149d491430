//! `POST /candidates/{domain}/{path}/promote`: a candidate becomes the limit of its rule, in a version of its own.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_control::{Files, OverrideEntry};
use tollgate_rules::config::promote_candidate;

use super::{
    error::ApiError,
    extract::{Force, Integer, JsonBody, PathParam},
    limit_edit::{self, VersionTerms},
    response::ApiResult,
    state::Api,
    timeouts, versions,
};
use crate::http::admin::auth::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromoteRequest {
    /// The version expected to be active; by default the one that is changed.
    based_on: Option<Integer>,
    comment: String,
    #[serde(default)]
    force: Force,
}

/// Candidate that an override states.
struct Overriding {
    /// Identifier of the override.
    id: String,
    candidate: Map<String, Value>,
}

/// Makes the candidate of a rule its limit. One that an override states becomes that of the file, and the override ends.
pub(super) async fn promote(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    PathParam((domain, rule)): PathParam<(String, String)>,
    JsonBody(request, _permit): JsonBody<PromoteRequest>,
) -> ApiResult {
    let overriding = overriding(&api, &domain, &rule)?;
    if !api.is_editable() {
        return Err(read_only(&api, &domain, &rule, overriding.as_ref()).await?);
    }
    let (id, candidate) = overriding.map(|Overriding { id, candidate }| (id, candidate)).unzip();
    let (options, PromoteRequest { based_on, comment, force }) = (api.parts.options, request);
    let edit = move |files: &Files| promote_candidate(files, options, (&domain, &rule), candidate.as_ref());
    let change = VersionTerms { based_on, comment, force };
    let version = limit_edit::make_version(&api, &caller, change, edit).await?;
    if let Some(id) = id
        && let Err(error) = timeouts::write(api.parts.control.remove_override(&id, &caller.name)).await
    {
        // The version is made: the override compares the limit with itself until it is removed.
        tracing::warn!(%id, ?error, "failed to remove the override of a candidate");
    }
    versions::created(&version)
}

/// The candidate that an override of the whole rule states.
fn overriding(api: &Api, domain: &str, rule: &str) -> Result<Option<Overriding>, ApiError> {
    let id = OverrideEntry::id_of(domain, rule, &[]).to_string();
    let Some((_, entry)) = api.parts.control.rule_override(&id) else { return Ok(None) };
    let is_alone = entry.rate_limit.len() == 1;
    match entry.rate_limit.get("candidate") {
        None => Ok(None),
        Some(Value::Object(candidate)) if is_alone => {
            Ok(Some(Overriding { id, candidate: candidate.clone() }))
        }
        Some(_) => Err(ApiError::BadRequest(
            "the override of the rule states other keys too; expected one with a candidate alone".to_owned(),
        )),
    }
}

/// The error where rules are changed in their source.
async fn read_only(
    api: &Arc<Api>,
    domain: &str,
    rule: &str,
    overriding: Option<&Overriding>,
) -> Result<ApiError, ApiError> {
    let Some(source) = limit_edit::source_of(api, domain, rule).await? else {
        return Ok(ApiError::NotFound("no active rule of this domain has this path".to_owned()));
    };
    Ok(ApiError::ReadOnly(match overriding {
        Some(Overriding { candidate, .. }) => {
            format!("{source}, or override the limit: {}", limit_edit::override_of(domain, rule, candidate))
        }
        None => format!("{source}: the limit needs the keys of its `candidate` in their place"),
    }))
}
