//! `GET /history` and `GET /top`: decisions and top talkers of the last minutes, of all instances or of this one;
//! `GET /candidates`: comparisons of rules with their candidates; `GET /recommendations`: limits that would deny certain parts of
//! what was requested.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::spawn_blocking;
use tollgate_limiter::talkers::DomainTop;

use super::{
    Api,
    extract::{QueryParams, RuleQuery, page_size},
    limits::{self, Lane},
    response::{self, ApiError, ApiResult},
};
use crate::{
    fleet::{FleetReports, InstanceStatus, history},
    http::admin::auth::Caller,
};

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
pub(crate) struct ShownTop {
    #[serde(flatten)]
    pub(crate) top: DomainTop,
    /// Whether the domain has rules on this instance.
    pub(crate) has_rules: bool,
}

/// Traffic with its origin.
struct Traffic<T> {
    scope: &'static str,
    value: T,
    /// Reason why it is not that of all instances, if that was requested.
    problem: Option<String>,
}

/// Returns the decisions of the last 15 minutes.
pub(super) async fn history(api: Api, QueryParams(query): QueryParams<HistoryQuery>) -> ApiResult {
    let fleet = &api.parts.fleet;
    let of_fleet = match query.scope {
        Scope::Fleet => Some(
            limits::read(async { Ok((fleet.history().await?, fleet.reports().await?.instances.clone())) })
                .await,
        ),
        Scope::Instance => None,
    };
    let Traffic { scope, value: (history, instances), problem } =
        or_own(of_fleet, async || Ok((history::history(), own_instances(&api).await?))).await?;
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
    let fleet = &api.parts.fleet;
    let of_fleet = match query.scope {
        Scope::Fleet => Some(limits::read(fleet.reports()).await),
        Scope::Instance => None,
    };
    let Traffic { scope, value: reports, problem } =
        or_own(of_fleet, async || own_reports(&api).await.map(Arc::new)).await?;
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

/// The traffic of all instances, or that of this one if it is not requested or not available.
async fn or_own<T>(
    of_fleet: Option<Result<T, tollgate_control::ControlError>>,
    own: impl AsyncFnOnce() -> Result<T, ApiError>,
) -> Result<Traffic<T>, ApiError> {
    Ok(match of_fleet {
        Some(Ok(value)) => Traffic { scope: "fleet", value, problem: None },
        Some(Err(error)) => {
            Traffic { scope: "instance", value: own().await?, problem: Some(error.to_string()) }
        }
        None => Traffic { scope: "instance", value: own().await?, problem: None },
    })
}

async fn own_reports(api: &Api) -> Result<FleetReports, ApiError> {
    api.parts.fleet.own_reports().await.map_err(|_| ApiError::Internal)
}

async fn own_instances(api: &Api) -> Result<Vec<InstanceStatus>, ApiError> {
    own_reports(api).await.map(|reports| reports.instances)
}

/// Lists the comparisons of the fleet, by domain and rule.
pub(super) async fn candidates(api: Api, QueryParams(query): QueryParams<RuleQuery>) -> ApiResult {
    let mut candidates = limits::read(api.parts.rollouts.candidates()).await?;
    candidates.retain(|found| query.selects(&found.domain, &found.rule));
    response::json(&json!({ "candidates": candidates }))
}

/// Recommends limits for the active rules, by domain and rule.
pub(super) async fn recommendations(api: Api, caller: Caller, query: QueryParams<RuleQuery>) -> ApiResult {
    let QueryParams(query) = query;
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
