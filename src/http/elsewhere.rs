//! Paths of the reference's debug port that are not here, and what is in their place.

use axum::{
    Router,
    http::StatusCode,
    routing::{MethodRouter, any},
};

/// Routes that say so.
pub(super) fn router() -> Router {
    Router::new()
        .route("/debug/pprof/", told(NO_PROFILER))
        .route("/debug/pprof/{*profile}", told(NO_PROFILER))
}

const NO_PROFILER: &str = "there is no /debug/pprof: profile the process from outside, for example with `perf record -g -p PID`; \
     the program has its symbols\n";

fn told(answer: &'static str) -> MethodRouter {
    any((StatusCode::NOT_FOUND, answer))
}
