//! The admin port: what only operators may see.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{
        StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::get,
};

use super::{metrics, metrics_page, ready, rlconfig, token::Token};
use crate::{metrics::Exporter, rules::Snapshot, server::Readiness};

/// What the admin port tells about.
#[derive(Debug)]
pub struct AdminParts {
    /// What `/healthcheck` says.
    pub readiness: Readiness,
    /// What `/rlconfig` shows.
    pub rules: Arc<Snapshot>,
    /// What `/metrics` shows, if anything is counted.
    pub exporter: Option<Exporter>,
    /// What every request has to show.
    pub token: Option<Token>,
}

/// Every path of the admin port. Each of them, and each that is not there, wants the token if there is one.
pub fn router(parts: AdminParts) -> Router {
    let routes = Router::new()
        .route("/rlconfig", get(rlconfig::show).with_state(parts.rules))
        .route("/metrics", get(metrics).with_state(metrics_page(parts.exporter)))
        .route("/healthcheck", get(ready).with_state(parts.readiness));
    match parts.token {
        Some(token) => routes.fallback(StatusCode::NOT_FOUND).layer(from_fn_with_state(token, authenticate)),
        None => routes,
    }
}

async fn authenticate(State(token): State<Token>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    match shown.is_some_and(|shown| token.is(shown)) {
        true => next.run(request).await,
        false => (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response(),
    }
}

/// The token of an `Authorization` header.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_behind_its_scheme() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abcdef"), None);
        assert_eq!(bearer(b"abc"), None);
    }
}
