//! Table of paths.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::header::CONTENT_TYPE,
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{MethodRouter, delete, get, post, put},
};

use super::{
    bans, counters, diff, dry_run,
    error::ApiError,
    extract::{WriteRequest, now_ms},
    limits::ApiLimits,
    lists, logs, me, origin_check, overrides, regions, rollouts, rules,
    state::{Api, ApiParts},
    status, switches, talkers, validate, versions,
};
use crate::http::admin::auth::{Authenticator, Caller, Role};

type Route = MethodRouter<Arc<Api>>;

/// Routes that change nothing.
fn viewer_routes() -> [(&'static str, Route); 21] {
    [
        ("/me", get(me::show)),
        ("/status", get(status::show)),
        ("/rules", get(rules::list)),
        ("/history", get(talkers::history)),
        ("/top", get(talkers::top)),
        ("/versions", get(versions::list)),
        ("/versions/{number}", get(versions::show)),
        ("/versions/{number}/diff", get(diff::versions)),
        ("/diff", post(diff::draft)),
        ("/validate", post(validate::validate)),
        ("/try", post(dry_run::run)),
        ("/usage", get(counters::usage)),
        ("/lists", get(lists::list)),
        ("/bans", get(bans::list)),
        ("/candidates", get(rollouts::candidates)),
        ("/recommendations", get(rollouts::recommendations)),
        ("/switches", get(switches::list)),
        ("/overrides", get(overrides::list)),
        ("/audit", get(logs::audit)),
        ("/events", get(logs::events)),
        ("/regions", get(regions::show)),
    ]
}

/// Routes that change something.
fn operator_routes() -> [(&'static str, Route); 12] {
    [
        ("/versions", post(versions::apply)),
        ("/versions/{number}/rollback", post(versions::rollback)),
        ("/counters/reset", post(counters::reset)),
        ("/counters/refund", post(counters::refund)),
        ("/lists", post(lists::add)),
        ("/lists/{id}", delete(lists::remove)),
        ("/automatic/{id}/exempt", post(lists::exempt)),
        ("/bans/{id}", delete(bans::remove)),
        ("/switches", put(switches::set).delete(switches::remove)),
        ("/overrides", put(overrides::set)),
        ("/overrides/batch", post(overrides::set_many)),
        ("/overrides/{id}", delete(overrides::remove)),
    ]
}

/// Every path below `/api/v1`, for authenticated callers.
pub(in crate::http) fn routes(parts: ApiParts, auth: Authenticator) -> Router {
    let is_token_required = auth.tokens.is_some();
    let started_at_ms = now_ms();
    let api = Arc::new(Api { parts, limits: ApiLimits::default(), started_at_ms, is_token_required });
    let mut router: Router<Arc<Api>> = Router::new();
    for (path, route) in viewer_routes() {
        router = router.route(path, route);
    }
    for (path, route) in operator_routes() {
        router = router.route(path, route.route_layer(from_fn(require_operator)));
    }
    router
        .fallback(async || ApiError::NotFound("unknown path".to_owned()))
        .method_not_allowed_fallback(async || ApiError::Method)
        .layer(from_fn_with_state(auth, origin_check::refuse_other_origins))
        .with_state(api)
}

/// Serves the OpenAPI document.
pub(in crate::http) async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], include_str!("../openapi.json"))
}

async fn require_operator(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(WriteRequest);
    let role = request.extensions().get::<Caller>().map(|caller| caller.role);
    match role.is_some_and(|role| role >= Role::Operator) {
        true => next.run(request).await,
        false => ApiError::Forbidden("insufficient role; expected operator".to_owned()).into_response(),
    }
}

#[cfg(test)]
mod tests;
