//! `GET /status`: this instance, its rules and store, and the other instances.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Value, json};
use tollgate_store::redis::metrics::{self, CommandSlots};

use super::{
    response::{self, ApiResult},
    state::Api,
    timeouts,
};
use crate::readiness::Phase;

/// Returns the status of this instance, and of the others if the control store responds.
pub(super) async fn show(State(api): State<Arc<Api>>) -> ApiResult {
    let (instances, problem) = match timeouts::read(api.parts.control.instances()).await {
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
