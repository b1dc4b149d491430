//! Status of an instance and of the others: `GET /status`, `/me`, `/regions`, and the logs `/audit` and `/events`.

use serde_json::{Value, json};
use tollgate_store::redis::metrics::{self, CommandSlots};

use super::{
    Api,
    extract::{LogQuery, QueryParams},
    limits,
    response::{self, ApiResult},
};
use crate::{http::admin::auth::Caller, readiness::Phase};

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
        "phase": phase_name(api.parts.readiness.phase()),
        "not_ready": api.parts.readiness.problem(),
        "is_editable": api.is_editable(),
        "rules": *api.parts.status.now(),
        "domains": rules.as_ref().map_or(0, |rules| rules.domains().count()),
        "rule_count": rules.as_ref().map_or(0, |rules| rules.rule_count()),
        "store": store(&api),
        "emergencies": api.parts.rules.lists().emergencies(),
        "instances": instances,
        "problem": problem,
    }))
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Stopping => "stopping",
    }
}

fn store(api: &Api) -> Value {
    let facts = &api.parts.store;
    json!({
        "kind": facts.kind,
        "address": facts.address,
        "breakers_open": metrics::breakers_open(),
        "cluster_connections": {
            "one_slot": CommandSlots::One.connections(),
            "any_slot": CommandSlots::Any.connections(),
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
    let view = api.parts.regions.as_ref().map(|regions| regions.view());
    let mut body = match view.map(serde_json::to_value) {
        Some(Ok(Value::Object(view))) => view,
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
