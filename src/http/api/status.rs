//! `GET /status`: what runs, where, and what it enforces.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Value, json};

use super::{
    answer::{self, Answer},
    parts::Api,
    wait,
};
use crate::{metrics, readiness::Phase};

/// Tells of this instance, and of the others as far as the store answers.
pub(super) async fn show(State(api): State<Arc<Api>>) -> Answer {
    let (instances, problem) = match wait::read(api.parts.control.instances()).await {
        Ok(instances) => (instances, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let rules = api.parts.rules.load();
    answer::json(&json!({
        "program": env!("CARGO_PKG_VERSION"),
        "instance": api.parts.control.instance(),
        "started_at_ms": api.started_at_ms,
        "phase": phase(api.parts.readiness.phase()),
        "is_editable": api.is_editable(),
        "rules": *api.parts.status.now(),
        "domains": rules.as_ref().map_or(0, |rules| rules.domains().count()),
        "rule_count": rules.as_ref().map_or(0, |rules| rules.rule_count()),
        "store": api.store(),
        "instances": instances,
        "problem": problem,
    }))
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Stopping => "stopping",
    }
}

impl Api {
    fn store(&self) -> Value {
        let facts = &self.parts.store;
        json!({
            "kind": facts.kind,
            "address": facts.address,
            "breakers_open": metrics::redis_breakers_open(),
            "replicas": facts.replicas.as_ref().map_or(1, |replicas| replicas.known().get()),
            "counters": facts.memory.occupancy().counters,
        })
    }
}
