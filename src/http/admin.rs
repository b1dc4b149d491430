//! The admin port: what only operators may see.

use std::sync::Arc;

use axum::{Router, http::StatusCode, middleware::from_fn_with_state, routing::get};

use super::{
    Tokens,
    access::{Gate, authenticate},
    api::{self, ApiParts},
    dashboard, elsewhere, metrics, metrics_page,
    page::{Page, plain},
    ready, rlconfig,
};
use crate::{legacy_stats, metrics::Exporter};

/// What the admin port tells about.
#[derive(Debug)]
pub struct AdminParts {
    /// What the API tells about and changes.
    pub api: ApiParts,
    /// What `/metrics` shows, if anything is counted.
    pub exporter: Option<Exporter>,
    /// What requests have to show, if they have to.
    pub tokens: Option<Tokens>,
    /// Whether the port wants clients' certificates.
    pub knows_clients: bool,
}

/// Every path of the admin port. Each of them, and each that is not there, wants a token if there are any, but for the
/// description of the API, which is the same everywhere, and the dashboard's page, which shows nothing without one.
pub fn router(parts: AdminParts) -> Router {
    let gate = Gate { tokens: parts.tokens, knows_clients: parts.knows_clients };
    let (rules, readiness) = (Arc::clone(&parts.api.rules), parts.api.readiness.clone());
    let is_counting = parts.exporter.is_some();
    let stats = Page::new(move || if is_counting { legacy_stats::text() } else { String::new() });
    // What scrapes metrics knows the port by any name; pages of browsers get nothing else.
    let [listed, stats] = [rlconfig::page(rules), stats]
        .map(|page| get(plain).with_state(page).layer(from_fn_with_state(gate.clone(), api::keep_out)));
    let guarded = Router::new()
        .route("/rlconfig", listed)
        .route("/stats", stats)
        .route("/metrics", get(metrics).with_state(metrics_page(parts.exporter)))
        .route("/healthcheck", get(ready).with_state(readiness))
        .nest("/api/v1", api::routes(parts.api, gate.clone()))
        .merge(elsewhere::router())
        .fallback(StatusCode::NOT_FOUND)
        .layer(from_fn_with_state(gate, authenticate));
    let open = Router::new().route("/api/v1/openapi.json", get(api::openapi));
    open.merge(dashboard::router()).merge(guarded)
}
