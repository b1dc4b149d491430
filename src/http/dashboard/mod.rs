//! The page that operators look at and change rules with: one document and the files that it asks for, all of them part
//! of the program. It holds nothing of the instance; what it shows it asks the API for, with the token of whoever looks.
//!
//! ```text
//! index.html ──> css/: tokens, then one file for each kind of part
//!            └─> js/main.js ──> routes ──> views/ ──> poll, api ──> /api/v1
//! ```

mod asset;
mod files;

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use self::{
    asset::Asset,
    files::{ASSETS, PAGE},
};

/// What the page may do: run its own files, and ask where it came from. Nothing is read as markup or as a script.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// What goes with each of its files.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    // No other page in the browser gets at this one, nor at what it loads.
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// The page at `/` and its files below `/assets/`. There is nothing secret in them: they are served without a token.
pub(super) fn router() -> Router {
    Router::new()
        .route("/", get(async |headers: HeaderMap| answer(Some(&PAGE), &headers)))
        .route("/assets/{*name}", get(show))
}

async fn show(Path(name): Path<String>, headers: HeaderMap) -> Response {
    answer(ASSETS.iter().find(|asset| asset.name == name), &headers)
}

/// The file, or that the one that the browser has is still the same.
fn answer(asset: Option<&Asset>, request: &HeaderMap) -> Response {
    let Some(asset) = asset else { return StatusCode::NOT_FOUND.into_response() };
    let tag = asset.tag();
    let held = request.get(header::IF_NONE_MATCH).is_some_and(|held| held.as_bytes() == tag.as_bytes());
    // A new program has new files, and a browser may not mix them with older ones: it asks each time.
    let kept = [(header::ETAG, tag), (header::CACHE_CONTROL, "no-cache".to_owned())];
    match held {
        true => (StatusCode::NOT_MODIFIED, HEADERS, kept).into_response(),
        false => (HEADERS, kept, [(header::CONTENT_TYPE, asset.kind())], asset.text).into_response(),
    }
}

#[cfg(test)]
mod tests;
