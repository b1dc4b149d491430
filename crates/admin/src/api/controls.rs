//! `/switches`: single rules that are turned off or put in shadow mode, for all keys or all but a share of them, and
//! emergencies, in which instances decide alone; `/overrides`: limits that operators set over rules, or over single keys of
//! them, mostly for a time.

use std::collections::{HashMap, HashSet};
use std::{future::ready, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tollgate_control::{OverrideEntry, Pair, Ramp, RampPlan, Switch, SwitchMode, check_switch};
use tollgate_core::EnforcedShare;
use tollgate_rules::{ALL_NAMES, Overridden, Rule, RuleOverrides};

use super::extract::{Integer, JsonBody, PathParam, QueryParams, Reason, expires_at, now_ms, page_size};
use super::limits::{self, Lane};
use super::response::{self, ApiError, ApiResult};
use super::{Api, guardrails::violations_of_overrides};
use crate::caller::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetSwitchRequest {
    domain: String,
    rule: String,
    mode: SwitchMode,
    #[serde(default)]
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
pub(super) async fn list_switches(api: Api) -> ApiResult {
    let runtime = limits::read(ready(api.parts.control.runtime())).await?;
    response::json(&json!({ "generation": runtime.generation, "switches": runtime.switches }))
}

/// Sets the switch of a rule.
pub(super) async fn set_switch(api: Api, caller: Caller, body: JsonBody<SetSwitchRequest>) -> ApiResult {
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
    check_switch(&switch).map_err(ApiError::InvalidLimit)?;
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
pub(super) async fn remove_switch(api: Api, caller: Caller, query: QueryParams<SwitchQuery>) -> ApiResult {
    let QueryParams(query) = query;
    let removed = api.parts.control.remove_switch(&query.domain, &query.rule, &caller.name);
    response::removed(limits::write(removed).await?, "the rule has no switch")
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
        // A descriptor may have several limits.
        let has_path = |rule: &&Arc<Rule>| rule.path() == path || rule.descriptor_path() == path;
        rules.domain(&domain)?.root.rules().find(has_path).map(drop)
    });
    Ok(found.await?.is_some())
}

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
#[derive(Debug, Serialize, Deserialize)]
pub struct OverrideView {
    #[serde(flatten)]
    pub entry: OverrideEntry,
    /// Reason why it has none, if so.
    pub problem: Option<String>,
}

/// Lists overrides, in the order of their identifiers.
pub(super) async fn list_overrides(
    api: Api,
    caller: Caller,
    query: QueryParams<OverridesQuery>,
) -> ApiResult {
    let QueryParams(query) = query;
    let limit = page_size(query.limit, DEFAULT_OVERRIDES, MAX_OVERRIDES)?;
    let permit = api.limits.large_response().await?;
    let shared = api.clone();
    let make = move || {
        let OverridesQuery { domain, rule, after, limit: _ } = query;
        let control = &shared.parts.control;
        let page = control.rule_overrides(domain.as_deref(), rule.as_deref(), after.as_deref(), limit);
        let active = shared.parts.rules.load_overridden();
        let unmatched = active.iter().flat_map(|(_, overridden)| &overridden.unmatched);
        let problems: HashMap<String, &str> =
            unmatched.map(|found| (found.id.to_string(), &*found.reason)).collect();
        let counts = active.iter().map(|(_, overridden)| overridden.counts).next().unwrap_or_default();
        let views: Vec<OverrideView> = page
            .overrides
            .into_iter()
            .map(|entry| OverrideView {
                problem: problems.get(&entry.id).map(|reason| (*reason).to_owned()),
                entry,
            })
            .collect();
        json!({
            "revision": page.revision,
            "overrides": views,
            "is_truncated": page.is_truncated,
            "active": { "rule": counts.rules, "key": counts.keys, "unmatched": counts.unmatched },
        })
    };
    limits::large(&api, Lane::Read(&caller), permit, make).await
}

/// Sets the override of a rule or of a key.
pub(super) async fn set_override(api: Api, caller: Caller, body: JsonBody<SetOverrideRequest>) -> ApiResult {
    let JsonBody(SetOverrideRequest { stated, reason, force }, _permit) = body;
    let request = SetOverridesRequest { overrides: vec![stated], reason, force };
    response::json(&put_overrides(&api, &caller, request).await?.first())
}

/// Sets many overrides.
pub(super) async fn set_overrides(
    api: Api,
    caller: Caller,
    body: JsonBody<SetOverridesRequest>,
) -> ApiResult {
    let JsonBody(request, _permit) = body;
    if request.overrides.is_empty() || request.overrides.len() > MAX_BATCH {
        return Err(ApiError::BadRequest(format!("overrides: expected 1 to {MAX_BATCH}")));
    }
    response::json(&json!({ "count": put_overrides(&api, &caller, request).await?.len() }))
}

/// Removes an override.
pub(super) async fn remove_override(api: Api, caller: Caller, PathParam(id): PathParam<String>) -> ApiResult {
    let removed = limits::write(api.parts.control.remove_override(&id, &caller.name)).await?;
    response::removed(removed, "no override has this id")
}

/// Validates overrides and puts them.
async fn put_overrides(
    api: &Api,
    caller: &Caller,
    SetOverridesRequest { overrides, reason, force }: SetOverridesRequest,
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
    let entries: Vec<_> = overrides.into_iter().map(entry).collect::<Result<_, ApiError>>()?;
    let (shared, checked) = (api.clone(), entries.clone());
    api.limits.scan(Lane::Write, move || check_overrides(&shared, &checked, force)).await??;
    limits::write(api.parts.control.put_overrides(entries.clone())).await?;
    Ok(entries)
}

/// Checks that each override has an effect on the active rules, and that none violates a guardrail.
fn check_overrides(api: &Api, entries: &[OverrideEntry], force: bool) -> Result<(), ApiError> {
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
        let compiled = entry.compiled().map_err(|error| rejected(entry, &error))?;
        stated.push(Arc::new(compiled));
    }
    let overrides = RuleOverrides { revision: 0, all: stated.into() };
    let overridden = Overridden::new(&rules, &overrides, now_ms());
    if let Some(first) = overridden.unmatched.first() {
        let id = first.id.to_string();
        let entry = entries.iter().find(|entry| entry.id == id);
        return Err(entry.map_or(ApiError::Internal, |entry| rejected(entry, &first.reason)));
    }
    if force {
        return Ok(());
    }
    response::require_force(violations_of_overrides(&rules, &overridden, &overrides, now_ms()))
}
