//! Metrics of the authentication.

use std::time::Duration;

use tollgate_metrics::{CounterFamily, Metric};
use tollgate_runtime::log_budget::LogBudget;

/// Metrics of the authentication.
pub static METRICS: &[&dyn Metric] = &[&UNAUTHORIZED];

static UNAUTHORIZED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_admin_unauthorized_total",
    &["token"],
    "Requests to the admin port that were refused because of their token.",
    &[["missing"], ["wrong"]],
);

/// Log lines on wrong tokens: who guesses them could fill the log.
static WRONG_TOKEN_LINES: LogBudget = LogBudget::new(5, Duration::from_secs(60));

/// Counts a request that was refused, and logs it if it has a token.
pub(super) fn refused(has_token: bool) {
    UNAUTHORIZED.increment([if has_token { "wrong" } else { "missing" }]);
    if has_token && let Some(suppressed) = WRONG_TOKEN_LINES.take() {
        tracing::warn!(suppressed, "admin request with a wrong token refused");
    }
}
