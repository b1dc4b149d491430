//! Dashboard for viewing and changing rules: static files embedded in the binary. They contain no data; the page requests
//! it from the API with the operator's token.
//!
//! ```text
//! index.html ──> css/: tokens, then one file for each kind of component
//!            └─> js/main.js ──> routes ──> views/ ──> poll, api ──> /api/v1
//! ```

#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, extract::Path, routing::get};

/// Content security policy: scripts, styles and requests of the same origin only; no text is parsed as markup or script.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every file.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    // Isolates the page and its files from other pages in the browser.
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// The document at `/` and the other files below `/assets/`. They contain no secrets and need no token.
pub(super) fn router() -> Router {
    Router::new()
        .route("/", get(async |headers: HeaderMap| respond(Some(&PAGE), &headers)))
        .route("/assets/{*name}", get(show))
}

async fn show(Path(name): Path<String>, headers: HeaderMap) -> Response {
    respond(ASSETS.iter().find(|asset| asset.name == name), &headers)
}

/// The file, or 304 if the browser has it in its cache.
fn respond(asset: Option<&Asset>, request: &HeaderMap) -> Response {
    let Some(asset) = asset else { return StatusCode::NOT_FOUND.into_response() };
    let etag = asset.etag();
    let is_cached = request.get(header::IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == etag.as_bytes());
    // The browser revalidates each time, as it must not mix files of two releases.
    let caching = [(header::ETAG, etag), (header::CACHE_CONTROL, "no-cache".to_owned())];
    if is_cached {
        return (StatusCode::NOT_MODIFIED, HEADERS, caching).into_response();
    }
    (HEADERS, caching, [(header::CONTENT_TYPE, asset.content_type())], asset.text).into_response()
}

/// A file of the dashboard.
#[derive(Debug)]
struct Asset {
    /// Path below `/assets/`.
    name: &'static str,
    text: &'static str,
}

impl Asset {
    /// Value of the `ETag` header.
    fn etag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }

    /// Value of the `Content-Type` header, by the file extension.
    fn content_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }
}

/// The document.
const PAGE: Asset = Asset { name: "index.html", text: include_str!("index.html") };

/// Every other file of the folder.
static ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));
