//! `/healthcheck` and `/ready`: readiness of the process.

use axum::{
    extract::State,
    http::StatusCode,
    routing::{MethodRouter, get},
};

use crate::readiness::Readiness;

/// Route that responds with 200 and `OK`, or 500, as envoyproxy/ratelimit does, and the reason.
pub(in crate::http) fn health_route(readiness: Readiness) -> MethodRouter {
    get(health).with_state(readiness)
}

async fn health(State(readiness): State<Readiness>) -> Result<&'static str, (StatusCode, String)> {
    readiness.problem().map_or(Ok("OK"), |problem| Err((StatusCode::INTERNAL_SERVER_ERROR, problem)))
}
