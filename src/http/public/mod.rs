//! Public HTTP port: the rate-limit call as JSON, health and metrics.

mod health;
pub(super) mod json;
mod metrics_page;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::from_fn,
    routing::{any, get},
};
use tollgate_metrics::Exporter;

pub(super) use self::{health::health_route, metrics_page::metrics_route};
pub use self::{json::DescriptorError, metrics_page::metrics_router};
use crate::{
    proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService, readiness::Readiness,
};

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
pub fn router<T: RateLimitService>(parts: PublicParts<T>) -> Result<Router, DescriptorError> {
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
