//! `/switches`: single rules that are turned off or put in shadow mode, for all keys or all but a share of them, and emergencies, in which instances decide alone.

use axum::{http::StatusCode, response::IntoResponse as _};
use serde::Deserialize;
use serde_json::json;
use tollgate_control::{Ramp, RampPlan, Switch, SwitchMode, check_switch, ramp::share_as_percent};
use tollgate_core::EnforcedShare;
use tollgate_rules::{ALL_NAMES, Rule};

use super::{
    Api,
    extract::{JsonBody, QueryParams},
    fields::{Integer, Reason, expires_at, now_ms},
    limits::{self, Lane},
    response::{self, ApiError, ApiResult},
};
use crate::http::admin::auth::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetSwitchRequest {
    domain: String,
    rule: String,
    mode: SwitchMode,
    #[serde(default, with = "share_as_percent")]
    enforce_percent: Option<EnforcedShare>,
    ramp: Option<RampRequest>,
    reason: Reason,
    expires_in_s: Option<Integer>,
}

/// Gradual increase of the share of the keys for which a rule is enforced, in steps of equal length.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RampRequest {
    steps: Vec<f64>,
    over_s: Integer,
    max_denied_percent: f64,
    min_hits: Option<Integer>,
}

/// Hits of enforced keys without which a step is not judged, unless a ramp states another number.
const DEFAULT_MIN_HITS: u64 = 100;

impl RampRequest {
    /// The ramp from now on; a rollback sets the share `back_to`.
    fn begin(self, back_to: EnforcedShare, now_ms: u64) -> Result<Ramp, ApiError> {
        let share = |percent: f64| {
            let share = EnforcedShare::from_percent(percent);
            share.map_err(|error| ApiError::BadRequest(format!("{percent} is not a share; {error}")))
        };
        let steps: Vec<_> = self.steps.into_iter().map(share).collect::<Result<_, _>>()?;
        let plan = RampPlan {
            step_ms: self.over_s.0.saturating_mul(1_000).checked_div(steps.len() as u64).unwrap_or_default(),
            steps,
            max_denied_percent: share(self.max_denied_percent)?,
            min_hits: self.min_hits.map_or(DEFAULT_MIN_HITS, |hits| hits.0.max(1)),
            back_to_percent: back_to,
        };
        Ok(Ramp::begin(plan, now_ms))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchQuery {
    domain: String,
    rule: String,
}

/// Returns every switch that is set.
pub(super) async fn list(api: Api) -> ApiResult {
    let runtime = limits::read(api.parts.control.runtime()).await?;
    response::json(&json!({ "generation": runtime.generation, "switches": runtime.switches }))
}

/// Sets the switch of a rule.
pub(super) async fn set(api: Api, caller: Caller, body: JsonBody<SetSwitchRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let created_at_ms = now_ms();
    let ramp = match request.ramp {
        Some(ramp) => {
            let lists = api.parts.rules.lists();
            let before = lists.share_of(&request.domain, &request.rule);
            let back_to = request.enforce_percent.or(before).unwrap_or(EnforcedShare::NONE);
            Some(ramp.begin(back_to, created_at_ms)?)
        }
        None => None,
    };
    let switch = Switch {
        domain: request.domain,
        rule: request.rule,
        mode: request.mode,
        enforce_percent: ramp.as_ref().map(Ramp::share).or(request.enforce_percent),
        ramp,
        reason: request.reason.0,
        author: caller.name.to_string(),
        created_at_ms,
        expires_at_ms: expires_at(created_at_ms, request.expires_in_s)?,
    };
    check_switch(&switch).map_err(|error| ApiError::InvalidLimit(error.to_string()))?;
    let is_emergency = switch.mode == SwitchMode::Emergency;
    if is_emergency && !has_domain(&api, &switch.domain) {
        return Err(ApiError::NotFound("no active domain has this name".to_owned()));
    }
    if !is_emergency && !has_rule(&api, &switch.domain, &switch.rule).await? {
        return Err(ApiError::NotFound("no active rule of this domain has this path".to_owned()));
    }
    limits::write(api.parts.control.put_switch(switch.clone())).await?;
    response::json(&switch)
}

/// Removes the switch of a rule.
pub(super) async fn remove(api: Api, caller: Caller, query: QueryParams<SwitchQuery>) -> ApiResult {
    let QueryParams(query) = query;
    let removed = api.parts.control.remove_switch(&query.domain, &query.rule, &caller.name);
    match limits::write(removed).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(ApiError::NotFound("the rule has no switch".to_owned())),
    }
}

/// Whether there is an active domain of that name, or it stands for all.
fn has_domain(api: &Api, domain: &str) -> bool {
    domain == ALL_NAMES || api.parts.rules.load().is_some_and(|rules| rules.domain(domain).is_some())
}

/// Whether an active rule has that path.
async fn has_rule(api: &Api, domain: &str, path: &str) -> Result<bool, ApiError> {
    let (rules, domain, path) = (api.parts.rules.load(), domain.to_owned(), path.to_owned());
    // There may be many.
    let found = api.limits.scan(Lane::Write, move || {
        let rules = rules?;
        rules.domain(&domain)?.root.rules().find(|rule| concerns(rule, &path)).map(drop)
    });
    Ok(found.await?.is_some())
}

/// Whether a path is that of a rule, or of its descriptor, which may have several limits.
fn concerns(rule: &Rule, path: &str) -> bool {
    rule.path() == path || rule.descriptor_path() == path
}
