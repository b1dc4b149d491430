//! `GET /recommendations`: limits that would deny certain parts of what was requested.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::Deserialize;
use serde_json::json;

use super::{
    extract::QueryParams,
    limits::Lane,
    response::{self, ApiResult},
    state::Api,
};
use crate::http::admin::auth::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecommendationsQuery {
    domain: Option<String>,
    rule: Option<String>,
}

/// Recommends limits for the active rules, by domain and rule.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<RecommendationsQuery>,
) -> ApiResult {
    let parts = &api.parts;
    let (demand, rules) = (parts.rollouts.demand().clone(), Arc::clone(&parts.rules));
    let instances = parts.store.replicas.as_ref().map_or(1, |replicas| replicas.known().get());
    let found = api.limits.scan(Lane::Read(&caller), move || {
        let mut found = demand.recommendations(&rules, instances);
        found.retain(|found| {
            query.domain.as_ref().is_none_or(|domain| *domain == found.domain)
                && query.rule.as_ref().is_none_or(|rule| *rule == found.rule)
        });
        found
    });
    let recommendations = found.await?;
    response::json(&json!({ "instances": instances, "recommendations": recommendations }))
}
