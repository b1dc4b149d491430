//! Admin port: the API, the dashboard, metrics and listings, for operators only.

pub(crate) mod api;
mod auth;
mod dashboard;
mod rlconfig;

use std::sync::Arc;

use axum::{
    Router,
    http::StatusCode,
    middleware::from_fn_with_state,
    routing::{any, get},
};
use tollgate_metrics::Exporter;

use self::auth::Authenticator;
use super::{
    cached_page::{CachedPage, plain_text},
    public,
};
use crate::legacy_stats;

pub use self::{
    api::{ApiParts, StoreInfo},
    auth::{METRICS, TokenError, Tokens},
};

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
    let stats = CachedPage::new(move || if is_counting { legacy_stats::text() } else { String::new() });
    // Scrapers of `/metrics` may use any host name, so that path has no origin check.
    let [rlconfig, stats] = [rlconfig::page(rules), stats].map(|page| {
        get(plain_text)
            .with_state(page)
            .layer(from_fn_with_state(authenticator.clone(), auth::refuse_other_origins))
    });
    let no_pprof = any((StatusCode::NOT_FOUND, PPROF_NOTICE));
    let guarded = Router::new()
        .route("/rlconfig", rlconfig)
        .route("/stats", stats)
        .route("/metrics", public::metrics_route(exporter))
        .route("/healthcheck", public::health_route(readiness))
        .nest("/api/v1", api::routes(parts, authenticator.clone()))
        .route("/debug/pprof/", no_pprof.clone())
        .route("/debug/pprof/{*profile}", no_pprof)
        .fallback(StatusCode::NOT_FOUND)
        .layer(from_fn_with_state(authenticator, auth::authenticate));
    let open = Router::new().route("/api/v1/openapi.json", get(api::openapi));
    open.merge(dashboard::router()).merge(guarded)
}
