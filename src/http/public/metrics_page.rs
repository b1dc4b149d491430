//! `/metrics`: the Prometheus exposition.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::{MethodRouter, get},
};
use tollgate_metrics::Exporter;

use crate::http::cached_page::CachedPage;

/// Route of the metrics.
pub(in crate::http) fn metrics_route(exporter: Option<Exporter>) -> MethodRouter {
    get(metrics).with_state(page(exporter))
}

/// Routes of a port that serves metrics at `path`, and nothing else.
pub fn metrics_router(path: String, exporter: Option<Exporter>) -> Router {
    let route = get(async move |uri: Uri, page: State<CachedPage>| match uri.path() == path {
        true => metrics(page).await.map(IntoResponse::into_response),
        false => Err(StatusCode::NOT_FOUND),
    });
    Router::new().fallback(route.with_state(page(exporter)))
}

fn page(exporter: Option<Exporter>) -> CachedPage {
    CachedPage::new(move || exporter.as_ref().map(Exporter::render).unwrap_or_default())
}

async fn metrics(State(page): State<CachedPage>) -> Result<impl IntoResponse, StatusCode> {
    let text = page.get().await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
