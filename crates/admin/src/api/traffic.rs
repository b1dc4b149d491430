//! Instances and their traffic: `GET /status` and `/me`, of this instance and its caller; `/regions`; the logs `/audit` and
//! `/events`; `/history` and `/top`, decisions and top talkers of the last minutes; `/candidates`, comparisons of rules with
//! their candidates; `/recommendations`, limits that would deny certain parts of what was requested.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tollgate_control::ControlError;
use tollgate_fleet::{FleetReports, history};
use tollgate_limiter::talkers::DomainTop;
use tollgate_store::redis::metrics;

use super::extract::{LogQuery, QueryParams, RuleQuery, page_size};
use super::limits::{self, Lane};
use super::response::{self, ApiError, ApiResult};
use super::{Api, JsonSource};
use crate::caller::Caller;

/// Returns the status of this instance, and of the others if the control store responds.
pub(super) async fn status(api: Api) -> ApiResult {
    let (instances, problem) = match limits::read(api.parts.control.instances()).await {
        Ok(instances) => (instances, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let rules = api.parts.rules.load();
    response::json(&json!({
        "program": env!("CARGO_PKG_VERSION"),
        "instance": api.parts.control.instance(),
        "started_at_ms": api.started_at_ms,
        "phase": api.parts.readiness.phase().name(),
        "not_ready": api.parts.readiness.problem(),
        "is_editable": api.require_editable().is_ok(),
        "rules": *api.parts.status.now(),
        "domains": rules.as_ref().map_or(0, |rules| rules.domains().count()),
        "rule_count": rules.as_ref().map_or(0, |rules| rules.rule_count()),
        "store": store(&api),
        "emergencies": api.parts.rules.lists().emergencies,
        "instances": instances,
        "problem": problem,
    }))
}

fn store(api: &Api) -> Value {
    let facts = &api.parts.store;
    let [one_slot, any_slot] = metrics::connections_by_slots();
    json!({
        "kind": facts.kind,
        "address": facts.address,
        "breakers_open": metrics::breakers_open(),
        "cluster_connections": {
            "one_slot": one_slot,
            "any_slot": any_slot,
        },
        "replicas": facts.replicas.as_ref().map_or(1, |replicas| replicas.known().get()),
        "counters": facts.memory.occupancy().counters,
    })
}

/// Returns the caller's name and role.
pub(super) async fn me(api: Api, caller: Caller) -> ApiResult {
    response::json(&json!({
        "name": caller.name,
        "role": caller.role,
        "is_token_required": api.is_token_required,
    }))
}

/// Returns the regions, without a region table none, and the state of copied rules.
pub(super) async fn regions(api: Api) -> ApiResult {
    let mut body = match api.parts.regions.as_ref().map(JsonSource::view) {
        Some(Value::Object(view)) => view,
        _ => serde_json::Map::from_iter([
            ("region".to_owned(), Value::Null),
            ("regions".to_owned(), json!([])),
        ]),
    };
    body.insert("rules".to_owned(), json!(api.parts.status.now().copy));
    response::json(&Value::Object(body))
}

/// Lists the latest changes.
pub(super) async fn audit(api: Api, QueryParams(query): QueryParams<LogQuery>) -> ApiResult {
    let entries = api.parts.control.audit(query.before.as_deref(), query.limit()?);
    response::json(&json!({ "entries": limits::read(entries).await? }))
}

/// Lists the latest events of all instances.
pub(super) async fn events(api: Api, QueryParams(query): QueryParams<LogQuery>) -> ApiResult {
    let events = api.parts.control.events(query.before.as_deref(), query.limit()?);
    response::json(&json!({ "events": limits::read(events).await? }))
}

const DEFAULT_KEYS: usize = 10;
/// Maximum keys of each domain in a response.
const MAX_KEYS: usize = 100;

/// Length of the sampling window, in seconds.
const WINDOW_S: u64 = 60;

/// Instances whose traffic a response has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    /// All; this one if the control store does not respond.
    #[default]
    Fleet,
    /// This one.
    Instance,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TalkersQuery {
    domain: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    scope: Scope,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    #[serde(default)]
    scope: Scope,
}

/// Keys of a domain.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShownTop {
    #[serde(flatten)]
    pub top: DomainTop,
    /// Whether the domain has rules on this instance.
    pub has_rules: bool,
}

/// Returns the decisions of the last 15 minutes.
pub(super) async fn history(api: Api, QueryParams(query): QueryParams<HistoryQuery>) -> ApiResult {
    let fleet = &api.parts.fleet;
    let of_fleet = async { Ok((fleet.history().await?, fleet.reports().await?.instances.clone())) };
    let own = async || Ok((history::history(), own_reports(&api).await?.instances));
    let (scope, (history, instances), problem) = of_scope(query.scope, of_fleet, own).await?;
    response::json(&json!({
        "interval_s": history.interval_s,
        "samples": history.samples,
        "scope": scope,
        "instances": instances,
        "problem": problem,
    }))
}

/// Returns the keys with the most hits and the most denied hits.
pub(super) async fn top(api: Api, QueryParams(query): QueryParams<TalkersQuery>) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_KEYS, MAX_KEYS)?;
    let own = async || own_reports(&api).await.map(Arc::new);
    let (scope, reports, problem) = of_scope(query.scope, api.parts.fleet.reports(), own).await?;
    let instances = reports.instances.clone();
    let rules = api.parts.rules.load();
    let shown = move |top: DomainTop| {
        let has_rules = rules.as_ref().is_some_and(|rules| rules.domain(&top.domain).is_some());
        ShownTop { top, has_rules }
    };
    // The sum over many instances takes some milliseconds.
    let top = move || reports.top(query.domain.as_deref(), limit).into_iter().map(shown).collect::<Vec<_>>();
    let domains = spawn_blocking(top).await;
    response::json(&json!({
        "window_s": WINDOW_S,
        "domains": domains.map_err(|_| ApiError::Internal)?,
        "scope": scope,
        "instances": instances,
        "problem": problem,
    }))
}

/// The traffic of all instances, or of this one if it is not requested or not available: its scope, the traffic, and the reason
/// why it is not that of all instances, if that was requested.
async fn of_scope<T>(
    scope: Scope,
    of_fleet: impl Future<Output = Result<T, ControlError>>,
    own: impl AsyncFnOnce() -> Result<T, ApiError>,
) -> Result<(&'static str, T, Option<String>), ApiError> {
    let problem = match scope {
        Scope::Instance => None,
        Scope::Fleet => match limits::read(of_fleet).await {
            Ok(value) => return Ok(("fleet", value, None)),
            Err(error) => Some(error.to_string()),
        },
    };
    Ok(("instance", own().await?, problem))
}

async fn own_reports(api: &Api) -> Result<FleetReports, ApiError> {
    api.parts.fleet.own_reports().await.map_err(|_| ApiError::Internal)
}

/// Lists the comparisons of the fleet, by domain and rule.
pub(super) async fn candidates(api: Api, QueryParams(query): QueryParams<RuleQuery>) -> ApiResult {
    let mut candidates = limits::read(api.parts.fleet.candidates()).await?;
    candidates.retain(|found| query.selects(&found.domain, &found.rule));
    response::json(&json!({ "candidates": candidates }))
}

/// Recommends limits for the active rules, by domain and rule.
pub(super) async fn recommendations(api: Api, caller: Caller, query: QueryParams<RuleQuery>) -> ApiResult {
    let QueryParams(query) = query;
    let parts = &api.parts;
    let (demand, rules) = (parts.fleet.demand().clone(), Arc::clone(&parts.rules));
    let instances = parts.store.replicas.as_ref().map_or(1, |replicas| replicas.known().get());
    let found = api.limits.scan(Lane::Read(&caller), move || {
        let mut found = demand.recommendations(&rules, instances);
        found.retain(|found| query.selects(&found.domain, &found.rule));
        found
    });
    let recommendations = found.await?;
    response::json(&json!({ "instances": instances, "recommendations": recommendations }))
}
