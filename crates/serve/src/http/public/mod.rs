//! Public HTTP port: the rate-limit call as JSON, health and metrics.

pub(super) mod json;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri, header::CONTENT_TYPE};
use axum::routing::{MethodRouter, any, get};
use axum::{Router, middleware::from_fn, response::IntoResponse};
use tollgate_metrics::Exporter;

use super::cached_page::CachedPage;
use crate::{grpc::unary::UnaryService, readiness::Readiness};

pub use self::json::DescriptorError;

/// Dependencies of the public port.
#[derive(Debug)]
pub struct PublicParts<T> {
    /// Service behind `/json`.
    pub rate_limit: T,
    /// Phase reported by the health checks.
    pub readiness: Readiness,
    /// Exporter of `/metrics`; `None` leaves it empty.
    pub exporter: Option<Exporter>,
    /// Maximum bytes of a request body.
    pub max_body: usize,
}

/// Routes of the public port.
///
/// # Errors
/// If the embedded protobuf descriptors are broken, which the tests of a build exclude.
pub fn router<T: UnaryService>(parts: PublicParts<T>) -> Result<Router, DescriptorError> {
    let endpoint = json::JsonEndpoint { rate_limit: parts.rate_limit, codec: json::JsonCodec::new()? };
    let json = any(json::should_rate_limit::<T>).layer(from_fn(json::refuse_web_pages));
    Ok(Router::new()
        .route("/json", json.with_state(Arc::new(endpoint)))
        .route("/healthcheck", health_route(parts.readiness.clone()))
        .route("/ready", health_route(parts.readiness))
        .route("/live", get("OK"))
        .route("/metrics", metrics_route(parts.exporter))
        .layer(DefaultBodyLimit::max(parts.max_body)))
}

/// Route that responds with 200 and `OK`, or 500, as envoyproxy/ratelimit does, and the reason.
pub fn health_route(readiness: Readiness) -> MethodRouter {
    get(health).with_state(readiness)
}

async fn health(State(readiness): State<Readiness>) -> Result<&'static str, (StatusCode, String)> {
    readiness.problem().map_or(Ok("OK"), |problem| Err((StatusCode::INTERNAL_SERVER_ERROR, problem)))
}

/// Route of the metrics.
pub fn metrics_route(exporter: Option<Exporter>) -> MethodRouter {
    get(metrics).with_state(page(exporter))
}

/// Routes of a port that serves metrics at `path`, and nothing else.
pub fn metrics_router(path: String, exporter: Option<Exporter>) -> Router {
    let route = get(
        async move |uri: Uri, page: State<CachedPage>| {
            if uri.path() == path { metrics(page).await } else { Err(StatusCode::NOT_FOUND) }
        },
    );
    Router::new().fallback(route.with_state(page(exporter)))
}

fn page(exporter: Option<Exporter>) -> CachedPage {
    CachedPage::new(move || exporter.as_ref().map(Exporter::render).unwrap_or_default())
}

async fn metrics(State(page): State<CachedPage>) -> Result<impl IntoResponse, StatusCode> {
    let text = page.get().await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
