//! What is served over HTTP/1: the call's JSON twin, health and metrics on one port, and what operators look at on
//! another.

mod access;
mod admin;
mod api;
mod dashboard;
mod elsewhere;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod json;
mod page;
mod port;
mod rlconfig;
mod timely;

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::{any, get},
};

pub(crate) use self::port::{HttpPort, Limits};
pub use self::{
    access::{TokenError, Tokens},
    admin::{AdminParts, router as admin_router},
    api::{ApiParts, StoreFacts},
    json::DescriptorsBroken,
};
use self::{json::Messages, page::Page};
use crate::{
    metrics::Exporter,
    proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService,
    readiness::{Phase, Readiness},
};

/// What the HTTP port tells about, and asks.
#[derive(Debug)]
pub struct Parts<T> {
    /// Answers `/json`.
    pub rate_limit: T,
    /// What `/healthcheck` says.
    pub readiness: Readiness,
    /// What `/metrics` shows, if anything is counted.
    pub exporter: Option<Exporter>,
    /// Bytes of a body.
    pub max_body: usize,
}

/// Every path of the HTTP port.
///
/// # Errors
/// When the descriptors of the messages are broken, which a build that passed its tests has not.
pub fn router<T: RateLimitService>(parts: Parts<T>) -> Result<Router, DescriptorsBroken> {
    let messages = Messages::new()?;
    let json = json::Twin { rate_limit: parts.rate_limit, messages };
    let call = any(json::answer::<T>);
    Ok(Router::new()
        .route("/json", call.with_state(Arc::new(json)))
        .route("/healthcheck", get(ready).with_state(parts.readiness.clone()))
        .route("/ready", get(ready).with_state(parts.readiness))
        .route("/live", get("OK"))
        .route("/metrics", get(metrics).with_state(metrics_page(parts.exporter)))
        .layer(DefaultBodyLimit::max(parts.max_body)))
}

/// As in the reference: 200 with `OK`, or 500 with nothing.
async fn ready(State(readiness): State<Readiness>) -> Result<&'static str, StatusCode> {
    match readiness.phase() {
        Phase::Ready => Ok("OK"),
        Phase::Starting | Phase::Stopping => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// The page of metrics.
fn metrics_page(exporter: Option<Exporter>) -> Page {
    Page::new(move || exporter.as_ref().map(Exporter::render).unwrap_or_default())
}

/// A port that has metrics at a path, and nothing else.
pub fn metrics_router(path: String, exporter: Option<Exporter>) -> Router {
    let at = get(async move |uri: Uri, page: State<Page>| match uri.path() == path {
        true => metrics(page).await.map(IntoResponse::into_response),
        false => Err(StatusCode::NOT_FOUND),
    });
    Router::new().fallback(at.with_state(metrics_page(exporter)))
}

async fn metrics(State(page): State<Page>) -> Result<impl IntoResponse, StatusCode> {
    let text = page.get().await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
