//! `POST /validate`: validates files without applying them.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::{Deserialize, Serialize};
use tollgate_rules::config::Loaded;

use super::{
    draft::{self, DraftFiles},
    error::{Invalid, ProblemView},
    extract::JsonBody,
    files,
    guardrails::{self, Traffic, Violation},
    limits::Lane,
    response::{self, ApiResult},
    state::Api,
};
use crate::http::admin::auth::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateRequest {
    files: DraftFiles,
}

#[derive(Debug, Serialize)]
struct ValidateResponse {
    is_valid: bool,
    domains: usize,
    rules: usize,
    problems: Vec<ProblemView>,
    report: String,
    reasons: Vec<Violation>,
}

/// Returns the report of `tollgate check` and the guardrails that applying these files would violate.
pub(super) async fn validate(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    JsonBody(request, _permit): JsonBody<ValidateRequest>,
) -> ApiResult {
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
    let load = if has_versions { draft::load_version } else { draft::load };
    let validated = api.limits.load(lane, move || match load(&files, options) {
        Ok(loaded) => {
            let violations = guardrails::violations(current.as_deref(), &loaded.rules, &traffic);
            valid(&loaded, violations)
        }
        Err(error) => invalid(error),
    });
    response::json(&validated.await?)
}

fn valid(loaded: &Loaded, reasons: Vec<Violation>) -> ValidateResponse {
    let (domains, rules) = (loaded.rules.domains().count(), loaded.rules.rule_count());
    let problems = loaded.warnings.problems();
    ValidateResponse {
        is_valid: true,
        domains,
        rules,
        problems: problems.iter().map(ProblemView::from).collect(),
        report: loaded.report(),
        reasons,
    }
}

fn invalid(Invalid { problems, report }: Invalid) -> ValidateResponse {
    ValidateResponse { is_valid: false, domains: 0, rules: 0, problems, report, reasons: Vec::new() }
}
