//! `GET /candidates`: comparisons of rules with their candidates; `GET /recommendations`: limits that would deny certain
//! parts of what was requested.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde_json::json;

use super::{
    extract::{QueryParams, RuleQuery},
    limits::Lane,
    response::{self, ApiResult},
    state::Api,
    timeouts,
};
use crate::http::admin::auth::Caller;

/// Lists the comparisons of the fleet, by domain and rule.
pub(super) async fn candidates(
    State(api): State<Arc<Api>>,
    QueryParams(query): QueryParams<RuleQuery>,
) -> ApiResult {
    let mut candidates = timeouts::read(api.parts.rollouts.candidates()).await?;
    candidates.retain(|found| query.selects(&found.domain, &found.rule));
    response::json(&json!({ "candidates": candidates }))
}

/// Recommends limits for the active rules, by domain and rule.
pub(super) async fn recommendations(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<RuleQuery>,
) -> ApiResult {
    let parts = &api.parts;
    let (demand, rules) = (parts.rollouts.demand().clone(), Arc::clone(&parts.rules));
    let instances = parts.store.replicas.as_ref().map_or(1, |replicas| replicas.known().get());
    let found = api.limits.scan(Lane::Read(&caller), move || {
        let mut found = demand.recommendations(&rules, instances);
        found.retain(|found| query.selects(&found.domain, &found.rule));
        found
    });
    let recommendations = found.await?;
    response::json(&json!({ "instances": instances, "recommendations": recommendations }))
}
