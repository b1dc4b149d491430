//! `/overrides`: limits that operators set over rules, or over single keys of them, mostly for a time.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use axum::{http::StatusCode, response::IntoResponse as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tollgate_control::{OverrideEntry, Pair};
use tollgate_rules::{Overridden, RuleOverrides};

use super::{
    Api,
    extract::{JsonBody, PathParam, QueryParams, page_size},
    fields::{Integer, Reason, expires_at, now_ms},
    guardrails::violations_of_overrides,
    limits::{self, Lane},
    response::{self, ApiError, ApiResult},
};
use crate::http::admin::auth::Caller;

const DEFAULT_OVERRIDES: usize = 1_000;
const MAX_OVERRIDES: usize = 10_000;

/// Maximum number of overrides of one request.
const MAX_BATCH: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverridesQuery {
    domain: Option<String>,
    rule: Option<String>,
    /// The identifier after which they follow.
    after: Option<String>,
    limit: Option<usize>,
}

/// A limit over a rule or a key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedOverride {
    domain: String,
    rule: String,
    #[serde(default)]
    key: Vec<Pair>,
    rate_limit: Map<String, Value>,
    expires_in_s: Option<Integer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetOverrideRequest {
    #[serde(flatten)]
    stated: StatedOverride,
    reason: Reason,
    #[serde(default)]
    force: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetOverridesRequest {
    overrides: Vec<StatedOverride>,
    reason: Reason,
    #[serde(default)]
    force: bool,
}

/// An override, and whether it has an effect.
#[derive(Debug, Serialize)]
struct OverrideView {
    #[serde(flatten)]
    entry: OverrideEntry,
    /// Reason why it has none, if so.
    problem: Option<String>,
}

/// Lists overrides, in the order of their identifiers.
pub(super) async fn list(api: Api, caller: Caller, query: QueryParams<OverridesQuery>) -> ApiResult {
    let QueryParams(query) = query;
    let limit = page_size(query.limit, DEFAULT_OVERRIDES, MAX_OVERRIDES)?;
    let permit = api.limits.large_response().await?;
    let shared = api.clone();
    let text = api.limits.scan(Lane::Read(&caller), move || {
        let OverridesQuery { domain, rule, after, limit: _ } = query;
        let control = &shared.parts.control;
        let page = control.rule_overrides(domain.as_deref(), rule.as_deref(), after.as_deref(), limit);
        let active = shared.parts.rules.load_overridden();
        let unmatched = active.iter().flat_map(|(_, overridden)| overridden.unmatched());
        let problems: HashMap<String, &str> =
            unmatched.map(|found| (found.id.to_string(), &*found.reason)).collect();
        let counts = active.iter().map(|(_, overridden)| overridden.counts()).next().unwrap_or_default();
        let views: Vec<OverrideView> = page
            .overrides
            .into_iter()
            .map(|entry| OverrideView {
                problem: problems.get(&entry.id).map(|reason| (*reason).to_owned()),
                entry,
            })
            .collect();
        response::to_vec(&json!({
            "revision": page.revision,
            "overrides": views,
            "is_truncated": page.is_truncated,
            "active": { "rule": counts.rules, "key": counts.keys, "unmatched": counts.unmatched },
        }))
    });
    Ok(response::large(text.await??, permit))
}

/// Sets the override of a rule or of a key.
pub(super) async fn set(api: Api, caller: Caller, body: JsonBody<SetOverrideRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let SetOverrideRequest { stated, reason, force } = request;
    let entries = put(&api, &caller, vec![stated], reason, force).await?;
    response::json(&entries.first())
}

/// Sets many overrides.
pub(super) async fn set_many(api: Api, caller: Caller, body: JsonBody<SetOverridesRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let SetOverridesRequest { overrides, reason, force } = request;
    if overrides.is_empty() || overrides.len() > MAX_BATCH {
        return Err(ApiError::BadRequest(format!("overrides: expected 1 to {MAX_BATCH}")));
    }
    let entries = put(&api, &caller, overrides, reason, force).await?;
    response::json(&json!({ "count": entries.len() }))
}

/// Removes an override.
pub(super) async fn remove(api: Api, caller: Caller, PathParam(id): PathParam<String>) -> ApiResult {
    match limits::write(api.parts.control.remove_override(&id, &caller.name)).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(ApiError::NotFound("no override has this id".to_owned())),
    }
}

/// Validates overrides and puts them.
async fn put(
    api: &Api,
    caller: &Caller,
    stated: Vec<StatedOverride>,
    reason: Reason,
    force: bool,
) -> Result<Vec<OverrideEntry>, ApiError> {
    let created_at_ms = now_ms();
    let entry = |stated: StatedOverride| {
        let entry = OverrideEntry {
            id: String::new(),
            domain: stated.domain,
            rule: stated.rule,
            key: stated.key,
            rate_limit: stated.rate_limit,
            reason: reason.0.clone(),
            author: caller.name.to_string(),
            created_at_ms,
            expires_at_ms: expires_at(created_at_ms, stated.expires_in_s)?,
        };
        Ok(entry.identified())
    };
    let entries: Vec<_> = stated.into_iter().map(entry).collect::<Result<_, ApiError>>()?;
    let (shared, checked) = (api.clone(), entries.clone());
    api.limits.scan(Lane::Write, move || check(&shared, &checked, force)).await??;
    limits::write(api.parts.control.put_overrides(entries.clone())).await?;
    Ok(entries)
}

/// Checks that each override has an effect on the active rules, and that none violates a guardrail.
fn check(api: &Api, entries: &[OverrideEntry], force: bool) -> Result<(), ApiError> {
    let rejected = |entry: &OverrideEntry, reason: &str| {
        let reason = match entries.len() {
            1 => reason.to_owned(),
            _ => format!("{} {} {}: {reason}", entry.domain, entry.rule, entry.key_text()),
        };
        ApiError::InvalidLimit(reason)
    };
    let rules = api.parts.rules.load().unwrap_or_default();
    let paths = |domain: &str| -> HashSet<String> {
        let rules = rules.domain(domain).into_iter().flat_map(|domain| domain.root.rules());
        rules.map(|rule| rule.path()).collect()
    };
    let mut known: HashMap<&str, HashSet<String>> = HashMap::new();
    let mut stated = Vec::new();
    for entry in entries {
        let paths = known.entry(&entry.domain).or_insert_with(|| paths(&entry.domain));
        if !paths.contains(&entry.rule) {
            return Err(ApiError::NotFound(format!(
                "no active rule of the domain {} has the path {}",
                entry.domain, entry.rule
            )));
        }
        let compiled = entry.compiled().map_err(|error| rejected(entry, &error.to_string()))?;
        stated.push(Arc::new(compiled));
    }
    let overrides = RuleOverrides::new(0, stated);
    let overridden = Overridden::new(&rules, &overrides, now_ms());
    if let Some(first) = overridden.unmatched().first() {
        let id = first.id.to_string();
        let entry = entries.iter().find(|entry| entry.id == id);
        return Err(entry.map_or(ApiError::Internal, |entry| rejected(entry, &first.reason)));
    }
    match violations_of_overrides(&rules, &overridden, &overrides, now_ms()) {
        violations if force || violations.is_empty() => Ok(()),
        violations => Err(ApiError::NeedsForce(violations)),
    }
}
