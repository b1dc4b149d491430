//! The table of paths.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, delete, get, post, put},
};

use super::{
    apply, audit,
    body::Changes,
    browser, counters, diff,
    error::ApiError,
    heavy::Turns,
    history, listed, lists, me,
    parts::{Api, ApiParts},
    reason, status, switches, trial, validate, versions,
};
use crate::http::access::{Caller, Gate, Role};

type Route = MethodRouter<Arc<Api>>;

/// What looks, and changes nothing.
fn open_to_viewers() -> [(&'static str, Route); 15] {
    [
        ("/me", get(me::show)),
        ("/status", get(status::show)),
        ("/rules", get(listed::list)),
        ("/history", get(history::show)),
        ("/top", get(history::top)),
        ("/versions", get(versions::list)),
        ("/versions/{number}", get(versions::show)),
        ("/versions/{number}/diff", get(diff::versions)),
        ("/diff", post(diff::draft)),
        ("/validate", post(validate::validate)),
        ("/try", post(trial::run)),
        ("/counters/read", post(counters::read)),
        ("/lists", get(lists::list)),
        ("/switches", get(switches::list)),
        ("/audit", get(audit::list)),
    ]
}

/// What changes something.
fn open_to_operators() -> [(&'static str, Route); 7] {
    [
        ("/versions", post(apply::apply)),
        ("/versions/{number}/rollback", post(apply::rollback)),
        ("/counters/reset", post(counters::reset)),
        ("/counters/refund", post(counters::refund)),
        ("/lists", post(lists::add)),
        ("/lists/{id}", delete(lists::remove)),
        ("/switches", put(switches::set).delete(switches::remove)),
    ]
}

/// Every path below `/api/v1`, for callers that were let in.
pub(in crate::http) fn routes(parts: ApiParts, gate: Gate) -> Router {
    let is_token_required = gate.tokens.is_some();
    let started_at_ms = reason::now_ms();
    let api = Arc::new(Api { parts, turns: Turns::default(), started_at_ms, is_token_required });
    let mut router: Router<Arc<Api>> = Router::new();
    for (path, route) in open_to_viewers() {
        router = router.route(path, route);
    }
    for (path, route) in open_to_operators() {
        router = router.route(path, route.route_layer(from_fn(only_operators)));
    }
    router
        .fallback(async || ApiError::NotFound("there is no such path".to_owned()))
        .method_not_allowed_fallback(async || ApiError::Method)
        .layer(from_fn_with_state(gate, browser::keep_out))
        .with_state(api)
}

async fn only_operators(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(Changes);
    let role = request.extensions().get::<Caller>().map(|caller| caller.role);
    match role.is_some_and(|role| role >= Role::Operator) {
        true => next.run(request).await,
        false => ApiError::Forbidden("this takes the role of an operator".to_owned()).into_response(),
    }
}

#[cfg(test)]
#[path = "routes/tests.rs"]
mod tests;
