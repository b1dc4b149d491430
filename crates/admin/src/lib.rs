//! Admin port: the API, the dashboard, metrics and listings, for operators only.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

pub mod api;
mod auth;
mod caller;
mod dashboard;
mod rlconfig;
mod settings;

use std::sync::Arc;

use axum::routing::{any, get};
use axum::{Router, http::StatusCode, middleware::from_fn_with_state};
use tollgate_envoyproxy::stats as envoyproxy_stats;
use tollgate_metrics::Exporter;
use tollgate_serve::http::{CachedPage, health_route, metrics_route, plain_text};

use self::auth::Authenticator;

pub use self::api::{ApiParts, JsonSource, StoreInfo};
pub use self::auth::{METRICS, Tokens};
pub use self::settings::AdminSettings;

/// Notice at the `/debug/pprof` paths of envoyproxy/ratelimit, which tollgate does not have.
const PPROF_NOTICE: &str = "tollgate has no /debug/pprof; profile the process from outside, for example with \
     `perf record -g -p PID`; the binary includes symbols\n";

/// Dependencies of the admin port.
#[derive(Debug)]
pub struct AdminParts {
    /// Dependencies of the API.
    pub api: ApiParts,
    /// Exporter of `/metrics` and `/stats`; `None` leaves them empty.
    pub exporter: Option<Exporter>,
    /// Tokens that requests must present, if any.
    pub tokens: Option<Tokens>,
    /// Whether the port requires client certificates.
    pub requires_client_certificate: bool,
}

/// Routes of the admin port. Every path, unknown ones included, requires a token if there are any, except the OpenAPI
/// document, which is the same for every instance, and the dashboard's files, which contain no data.
pub fn router(parts: AdminParts) -> Router {
    let AdminParts { api: parts, exporter, tokens, requires_client_certificate } = parts;
    let authenticator = Authenticator { tokens, requires_client_certificate };
    let (rules, readiness) = (Arc::clone(&parts.rules), parts.readiness.clone());
    let is_counting = exporter.is_some();
    let stats = CachedPage::new(move || if is_counting { envoyproxy_stats::text() } else { String::new() });
    // Scrapers of `/metrics` may use any host name, so that path has no origin check.
    let [rlconfig, stats] = [rlconfig::page(rules), stats].map(|page| {
        get(plain_text)
            .with_state(page)
            .layer(from_fn_with_state(authenticator.clone(), auth::refuse_other_origins))
    });
    let api = api::routes(parts, authenticator.tokens.is_some());
    let api = api.layer(from_fn_with_state(authenticator.clone(), auth::refuse_other_origins));
    let no_pprof = any((StatusCode::NOT_FOUND, PPROF_NOTICE));
    let guarded = Router::new()
        .route("/rlconfig", rlconfig)
        .route("/stats", stats)
        .route("/metrics", metrics_route(exporter))
        .route("/healthcheck", health_route(readiness))
        .nest("/api/v1", api)
        .route("/debug/pprof/", no_pprof.clone())
        .route("/debug/pprof/{*profile}", no_pprof)
        .fallback(StatusCode::NOT_FOUND)
        .layer(from_fn_with_state(authenticator, auth::authenticate));
    let open = Router::new().route("/api/v1/openapi.json", get(api::openapi));
    open.merge(dashboard::router()).merge(guarded)
}
