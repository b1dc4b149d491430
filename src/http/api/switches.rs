//! `/switches`: single rules that are off, or only watched.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::IntoResponse as _};
use serde::Deserialize;
use serde_json::json;

use super::{
    answer::{self, Answer},
    body::Body,
    error::ApiError,
    heavy::Lane,
    parts::Api,
    query::Asked,
    reason::{self, Reason},
    wait,
    whole::Whole,
};
use crate::{
    control::{Switch, SwitchMode, check_switch},
    http::access::Caller,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Set {
    domain: String,
    rule: String,
    mode: SwitchMode,
    reason: Reason,
    expires_in_s: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Of {
    domain: String,
    rule: String,
}

/// Every switch that is set.
pub(super) async fn list(State(api): State<Arc<Api>>) -> Answer {
    let runtime = wait::read(api.parts.control.runtime()).await?;
    answer::json(&json!({ "generation": runtime.generation, "switches": runtime.switches }))
}

/// Sets the switch of a rule.
pub(super) async fn set(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Set>,
) -> Answer {
    let created_at_ms = reason::now_ms();
    let switch = Switch {
        domain: asked.domain,
        rule: asked.rule,
        mode: asked.mode,
        reason: asked.reason.0,
        author: caller.name.to_string(),
        created_at_ms,
        expires_at_ms: reason::end(created_at_ms, asked.expires_in_s)?,
    };
    check_switch(&switch).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    if !api.has_rule(&switch.domain, &switch.rule).await? {
        return Err(ApiError::NotFound("no rule in force has this path in this domain".to_owned()));
    }
    wait::write(api.parts.control.put_switch(switch.clone())).await?;
    answer::json(&switch)
}

/// Removes the switch of a rule.
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Asked(of): Asked<Of>,
) -> Answer {
    match wait::write(api.parts.control.remove_switch(&of.domain, &of.rule, &caller.name)).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(ApiError::NotFound("the rule has no switch".to_owned())),
    }
}

impl Api {
    /// Whether a rule in force has that path.
    async fn has_rule(&self, domain: &str, path: &str) -> Result<bool, ApiError> {
        let (rules, domain, path) = (self.parts.rules.load(), domain.to_owned(), path.to_owned());
        // There may be many.
        let found = self.turns.look(Lane::Change, move || {
            let rules = rules?;
            rules.domain(&domain)?.root.rules().find(|rule| rule.path() == path).map(drop)
        });
        Ok(found.await?.is_some())
    }
}
