//! `GET /candidates`: comparisons of rules with their candidates.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use serde_json::json;

use super::{
    extract::QueryParams,
    response::{self, ApiResult},
    state::Api,
    timeouts,
};
use crate::rollouts::CandidateView;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CandidatesQuery {
    domain: Option<String>,
    rule: Option<String>,
}

/// Lists the comparisons of the fleet, by domain and rule.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(query): QueryParams<CandidatesQuery>,
) -> ApiResult {
    let candidates = timeouts::read(api.parts.rollouts.candidates()).await?;
    let is_wanted = |found: &CandidateView| {
        query.domain.as_ref().is_none_or(|domain| *domain == found.domain)
            && query.rule.as_ref().is_none_or(|rule| *rule == found.rule)
    };
    let candidates: Vec<_> = candidates.into_iter().filter(is_wanted).collect();
    response::json(&json!({ "candidates": candidates }))
}
