//! The admin API: REST and JSON under `/api/v1`, described by `openapi.json`.
//!
//! - This file has the table of paths, with the role that each requires.
//! - `extract` has the extractors of requests and their field types, `response` the forms of responses and errors.
//! - `limits` bounds expensive work, which runs on blocking threads, a few tasks at a time, and calls to the control store.
//! - Each other file serves one resource.

mod bans;
pub mod counters;
pub mod diff;
mod dry_run;
mod extract;
mod guardrails;
mod limits;
mod records;
mod response;
mod rules;
pub mod traffic;
pub mod versions;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, fmt, ops::Deref, path::PathBuf, sync::Arc};

use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::http::{header::CONTENT_TYPE, request::Parts};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use serde::Serialize;
use serde_json::Value;
use tollgate_control::{Control, ControlError, RulesStatus};
use tollgate_fleet::FleetView;
use tollgate_limiter::{ActiveRules, CounterInspector, Replicas};
use tollgate_rules::config::Options;
use tollgate_serve::readiness::Readiness;
use tollgate_store::MemoryStore;

use self::extract::{WriteRequest, now_ms};
use self::limits::ApiLimits;
use crate::caller::{Caller, Role};

pub(super) use self::response::ApiError;

type Route = MethodRouter<Api>;

/// Routes that change nothing.
fn viewer_routes() -> [(&'static str, Route); 20] {
    [
        ("/me", get(traffic::me)),
        ("/status", get(traffic::status)),
        ("/rules", get(rules::list)),
        ("/history", get(traffic::history)),
        ("/top", get(traffic::top)),
        ("/versions", get(versions::list)),
        ("/versions/{number}", get(versions::show)),
        ("/versions/{number}/diff", get(diff::versions)),
        ("/diff", post(diff::draft)),
        ("/validate", post(versions::validate)),
        ("/try", post(dry_run::run)),
        ("/usage", get(counters::usage)),
        ("/records", get(records::list)),
        ("/records/{key}", get(records::show)),
        ("/bans", get(bans::list)),
        ("/candidates", get(traffic::candidates)),
        ("/recommendations", get(traffic::recommendations)),
        ("/audit", get(traffic::audit)),
        ("/events", get(traffic::events)),
        ("/regions", get(traffic::regions)),
    ]
}

/// Routes that change something.
fn operator_routes() -> [(&'static str, Route); 8] {
    [
        ("/versions", post(versions::apply)),
        ("/versions/{number}/rollback", post(versions::rollback)),
        ("/counters/reset", post(counters::reset)),
        ("/counters/refund", post(counters::refund)),
        ("/records", put(records::put)),
        ("/records/{key}", delete(records::remove)),
        ("/records/{key}/exempt", post(records::exempt)),
        ("/bans/{id}", delete(bans::remove)),
    ]
}

/// Every path below `/api/v1`, for authenticated callers, who may need tokens.
pub(super) fn routes(parts: ApiParts, is_token_required: bool) -> Router {
    let started_at_ms = now_ms();
    let api =
        Api(Arc::new(ApiState { parts, limits: ApiLimits::default(), started_at_ms, is_token_required }));
    let mut router: Router<Api> = Router::new();
    for (path, route) in viewer_routes() {
        router = router.route(path, route);
    }
    for (path, route) in operator_routes() {
        router = router.route(path, route.route_layer(from_fn(require_operator)));
    }
    router
        .fallback(async || ApiError::NotFound("unknown path".to_owned()))
        .method_not_allowed_fallback(async || ApiError::Method)
        .with_state(api)
}

/// Serves the OpenAPI document.
pub(super) async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], include_str!("openapi.json"))
}

async fn require_operator(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(WriteRequest);
    let role = request.extensions().get::<Caller>().map(|caller| caller.role);
    if role.is_some_and(|role| role >= Role::Operator) {
        return next.run(request).await;
    }
    ApiError::Forbidden("insufficient role; expected operator".to_owned()).into_response()
}

/// Dependencies of the API.
#[derive(Debug)]
pub struct ApiParts {
    /// Stored versions, lists, switches and the audit log.
    pub control: Control,
    /// Source and version of the active rules.
    pub status: RulesStatus,
    /// Active rules and overrides.
    pub rules: Arc<ActiveRules>,
    /// Options for loading rules.
    pub options: Options,
    /// Directory of rules that have no versions.
    pub directory: PathBuf,
    /// Phase of the process.
    pub readiness: Readiness,
    /// Counters, on the runtime that serves the API.
    pub counters: CounterInspector,
    /// Traffic of all instances.
    pub fleet: FleetView,
    /// Description of the counters' store.
    pub store: StoreInfo,
    /// The regions as `/regions` shows them, with a region table.
    pub regions: Option<JsonSource>,
}

/// A view of a part of the server that the API does not know.
#[derive(Clone)]
pub struct JsonSource(Arc<dyn Fn() -> Value + Send + Sync>);

impl JsonSource {
    /// A view that `view` makes for each request. Does not block.
    pub fn new<T: Serialize>(view: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || serde_json::to_value(view()).unwrap_or_default()))
    }

    fn view(&self) -> Value {
        (self.0)()
    }
}

impl fmt::Debug for JsonSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonSource")
    }
}

/// Description of the counters' store.
#[derive(Clone, Debug)]
pub struct StoreInfo {
    /// `memory` or `redis`.
    pub kind: &'static str,
    /// Its address, without secrets.
    pub address: String,
    /// The counters of this process.
    pub memory: MemoryStore,
    /// The number of instances that share the limits, where there can be more than one.
    pub replicas: Option<Replicas>,
}

/// Dependencies of the API, and its own state.
#[derive(Debug)]
struct ApiState {
    parts: ApiParts,
    limits: ApiLimits,
    started_at_ms: u64,
    /// Whether callers need a token.
    is_token_required: bool,
}

/// State of the API, an argument of handlers; clones share it.
#[derive(Clone, Debug)]
struct Api(Arc<ApiState>);

impl Deref for Api {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.0
    }
}

impl FromRequestParts<Self> for Api {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, api: &Self) -> Result<Self, Infallible> {
        Ok(api.clone())
    }
}

impl Api {
    /// Whether the rules have versions.
    fn has_versions(&self) -> bool {
        self.parts.status.now().source.has_versions()
    }

    /// Returns an error if the rules can't be edited.
    fn require_editable(&self) -> Result<(), ApiError> {
        if !self.has_versions() {
            return Err(ControlError::ReadOnly.into());
        }
        Ok(self.parts.control.require_writable()?)
    }
}
