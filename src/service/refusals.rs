//! Requests that are refused, in the log and in metrics.

use std::time::Duration;

use tollgate_metrics::StripedFamily;
use tollgate_runtime::{foreign_text::bounded, log_budget::LogBudget};

use super::metrics;

/// Reasons for which a request is refused. A bound is named like its flag.
const REASONS: [&str; 9] = [
    "domain",
    "descriptors",
    "max_descriptors",
    "max_entries",
    "max_text_bytes",
    "max_message_bytes",
    "limit",
    "lease",
    "malformed",
];

/// Lines of refused requests: some at once, and then one in ten seconds.
static LINES: LogBudget = LogBudget::new(8, Duration::from_secs(10));

pub(super) static REFUSED: StripedFamily<{ REASONS.len() }, 1> = StripedFamily::with_series(
    "tollgate_refused_requests_total",
    &["reason"],
    "Requests that were refused because they are malformed or exceed a bound.",
    || REASONS.map(|reason| [reason]),
)
.at_zero();

/// Counts and logs a request that is refused for one of [`REASONS`]. The domain is unknown if it was not decoded.
pub(crate) fn refused(reason: &'static str, domain: Option<&str>, error: &str) {
    metrics::answered("invalid");
    let at = REASONS.iter().position(|known| *known == reason);
    debug_assert!(at.is_some(), "{reason} is not a reason that is counted");
    at.iter().for_each(|at| REFUSED.increment(*at));
    if let Some(suppressed) = LINES.take() {
        let (domain, error) = (domain.map(bounded), bounded(error));
        tracing::warn!(reason, domain, error, suppressed, "request refused");
    }
}
