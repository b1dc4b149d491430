//! `POST /validate`: the report of `check`, and what applying would refuse.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::{Deserialize, Serialize};

use super::{
    answer::{self, Answer},
    body::Body,
    draft::{self, DraftFiles},
    error::{Invalid, ProblemView},
    heavy::Lane,
    parts::Api,
    safety::{self, Reason, Traffic},
};
use crate::{config::Loaded, http::access::Caller};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Validate {
    files: DraftFiles,
}

#[derive(Debug, Serialize)]
struct Validated {
    is_valid: bool,
    domains: usize,
    rules: usize,
    problems: Vec<ProblemView>,
    report: String,
    reasons: Vec<Reason>,
}

/// Says what applying these files would come to.
pub(super) async fn validate(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Validate>,
) -> Answer {
    let (options, files) = (api.parts.options, asked.files.0);
    let (lane, is_editable) = (Lane::Look(&caller), api.is_editable());
    // What is current, and what others are asked about, can't be asked for in an outage; what is so here will do.
    let current = match api.current_rules(lane).await {
        Ok(rules) => rules,
        Err(_) => api.parts.rules.load(),
    };
    let traffic = match api.traffic().await {
        Ok(traffic) => traffic,
        Err(_) => Traffic::here().await?,
    };
    let load = if is_editable { draft::load_version } else { draft::load };
    let validated = api.turns.load(lane, move || match load(&files, options) {
        Ok(loaded) => {
            let reasons = safety::reasons(current.as_deref(), &loaded.rules, &traffic);
            good(&loaded, reasons)
        }
        Err(invalid) => bad(invalid),
    });
    answer::json(&validated.await?)
}

fn good(loaded: &Loaded, reasons: Vec<Reason>) -> Validated {
    let (domains, rules) = (loaded.rules.domains().count(), loaded.rules.rule_count());
    let problems = loaded.warnings.problems();
    Validated {
        is_valid: true,
        domains,
        rules,
        problems: problems.iter().map(ProblemView::from).collect(),
        report: loaded.report(),
        reasons,
    }
}

fn bad(Invalid { problems, report }: Invalid) -> Validated {
    Validated { is_valid: false, domains: 0, rules: 0, problems, report, reasons: Vec::new() }
}
