//! `GET /anomalies`: unusual traffic of rules and domains.

use std::sync::Arc;

use axum::extract::State;
use serde_json::json;

use super::{
    response::{self, ApiResult},
    state::Api,
    timeouts,
};
use crate::anomalies::{AnomalyView, Sensitivity};

/// Lists active and recent anomalies of the fleet.
pub(super) async fn list(State(api): State<Arc<Api>>) -> ApiResult {
    let (sensitivity, status) = &api.parts.anomalies;
    let control = &api.parts.control;
    let view = match control.is_shared() {
        // Of the instance that evaluates the fleet.
        true => {
            let stored = timeouts::read(control.anomalies()).await?;
            // A view of another release that is not readable is replaced within a minute.
            stored.and_then(|view| serde_json::from_str(&view).ok()).unwrap_or_default()
        }
        false => AnomalyView::clone(&status.now()),
    };
    response::json(&json!({
        "sensitivity": sensitivity.map_or("off", Sensitivity::name),
        "evaluated_at_ms": view.evaluated_at_ms,
        "is_complete": view.is_complete,
        "learned": view.learned,
        "learning": view.learning,
        "active": view.active,
        "recent": view.recent,
    }))
}
