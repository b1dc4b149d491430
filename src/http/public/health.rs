//! `/healthcheck` and `/ready`: readiness of the process.

use axum::{
    extract::State,
    http::StatusCode,
    routing::{MethodRouter, get},
};

use crate::readiness::{Phase, Readiness};

/// Route that responds with 200 and `OK`, or 500 without a body, as envoyproxy/ratelimit does.
pub(in crate::http) fn health_route(readiness: Readiness) -> MethodRouter {
    get(health).with_state(readiness)
}

async fn health(State(readiness): State<Readiness>) -> Result<&'static str, StatusCode> {
    match readiness.phase() {
        Phase::Ready => Ok("OK"),
        Phase::Starting | Phase::Stopping => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
