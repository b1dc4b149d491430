//! Notice at the `/debug/pprof` paths of envoyproxy/ratelimit, which tollgate does not have.

use axum::{Router, http::StatusCode, routing::any};

const NOTICE: &str = "tollgate has no /debug/pprof; profile the process from outside, for example with \
     `perf record -g -p PID`; the binary includes symbols\n";

/// Routes that respond with 404 and the notice.
pub(super) fn router() -> Router {
    let notice = any((StatusCode::NOT_FOUND, NOTICE));
    Router::new().route("/debug/pprof/", notice.clone()).route("/debug/pprof/{*profile}", notice)
}
