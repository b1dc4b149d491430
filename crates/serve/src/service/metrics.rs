//! Requests in metrics and in the log.

use std::time::Duration;

use tollgate_core::descriptor::Descriptor;
use tollgate_limiter as limiter;
use tollgate_limiter::decision::{Code, Decision, Status};
use tollgate_metrics::{Histogram, Metric, Observed, StripedFamily, Unit};
use tollgate_runtime::{log_budget::LogBudget, redact::bounded};
use tollgate_store as store;
use tollgate_store::StoreError;

/// Metrics of requests.
pub static METRICS: &[&dyn Metric] = &[&REQUESTS, &REFUSED, &REQUEST_DURATION];

/// Results of a request: the two frequent ones, errors by their label, and requests without an answer.
const RESULTS: [&str; 17] = {
    let [a, b, c, d, e, f, g, h, i, j, k] = StoreError::LABELS;
    ["ok", "over_limit", "invalid", "no_rules", a, b, c, d, e, f, g, h, i, j, k, "panic", "cancelled"]
};

static REQUESTS: StripedFamily<{ RESULTS.len() }, 1> =
    StripedFamily::with_series("tollgate_requests_total", &["result"], "Requests by result.", || {
        RESULTS.map(|result| [result])
    })
    .at_zero();

/// Times of requests, from their receipt to their answer.
pub static REQUEST_DURATION: Histogram<{ store::metrics::TIME_BUCKETS }> = Histogram::new(
    "tollgate_request_duration_seconds",
    "Time in seconds from the receipt of a gRPC request to its answer.",
    Unit::Time,
    store::metrics::TIME_BOUNDS,
);

/// Times of requests or of the store.
pub type Times = Observed<{ store::metrics::TIME_BUCKETS }>;

/// Counts a request by its result: `ok`, `over_limit`, the label of the error, `panic`, or `cancelled` when the client
/// reset it.
pub fn answered(result: &'static str) {
    let at = RESULTS.iter().position(|known| *known == result);
    debug_assert!(at.is_some(), "{result} is not a result that is counted");
    if let Some(at) = at {
        REQUESTS.increment(at);
    }
}

/// Counts calls that were refused because their worker is overloaded.
pub fn shed(count: u64) {
    REQUESTS.add(RESULTS.map(|result| if result == "overloaded" { count } else { 0 }));
}

/// Counts of requests by result, as last published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseCounts {
    pub all: u64,
    pub over_limit: u64,
    /// Failed because the store did.
    pub store_errors: u64,
    /// Failed for another reason.
    pub other_errors: u64,
    /// Not entirely decided by the store.
    pub degraded: u64,
}

impl ResponseCounts {
    /// Reads the counts since the start.
    pub fn read() -> Self {
        let mut counts = Self { degraded: limiter::metrics::degraded_requests(), ..Self::default() };
        // A request that its client cancelled has no response.
        let results = RESULTS.into_iter().zip(REQUESTS.totals()).filter(|(result, _)| *result != "cancelled");
        for (result, count) in results {
            counts.all += count;
            let count_of_result = match result {
                "ok" => continue,
                "over_limit" => &mut counts.over_limit,
                "invalid" | "no_rules" | "panic" => &mut counts.other_errors,
                _ => &mut counts.store_errors,
            };
            *count_of_result += count;
        }
        counts
    }
}

/// Reasons for which a request is refused.
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
static REFUSAL_LINES: LogBudget = LogBudget::new(8, Duration::from_secs(10));

static REFUSED: StripedFamily<{ REASONS.len() }, 1> = StripedFamily::with_series(
    "tollgate_refused_requests_total",
    &["reason"],
    "Requests that were refused because they are malformed or exceed a bound.",
    || REASONS.map(|reason| [reason]),
)
.at_zero();

/// Counts and logs a request that is refused for one of [`REASONS`]. The domain is unknown if it was not decoded.
pub fn refused(reason: &'static str, domain: Option<&str>, error: &str) {
    answered("invalid");
    let at = REASONS.iter().position(|known| *known == reason);
    debug_assert!(at.is_some(), "{reason} is not a reason that is counted");
    at.iter().for_each(|at| REFUSED.increment(*at));
    if let Some(suppressed) = REFUSAL_LINES.take() {
        let (domain, error) = (domain.map(bounded), bounded(error));
        tracing::warn!(reason, domain, error, suppressed, "request refused");
    }
}

/// Lines of decisions: a hundred a second.
static DECISION_LINES: LogBudget = LogBudget::new(100, Duration::from_millis(10));

/// Logs the decision of each descriptor, with values of the request.
#[cold]
pub(super) fn log_decision(domain: &str, descriptors: &[Descriptor<'_>], decision: &Decision<'_>) {
    for (descriptor, status) in descriptors.iter().zip(&decision.statuses) {
        let Some(suppressed) = DECISION_LINES.take() else { continue };
        let pairs: Vec<String> =
            descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
        let limited = status.limited();
        let rule = match status {
            Status::Limited(limited) => limited.rule.map(|rule| rule.path()),
            Status::Shedding(shed) => Some(shed.rule.path()),
            Status::Unlimited => Some("unlimited".to_owned()),
            Status::NoLimit | Status::Off { .. } | Status::Denied => None,
        };
        tracing::debug!(
            domain = bounded(domain),
            descriptor = bounded(&pairs.join(",")),
            rule = rule.as_deref().unwrap_or("none"),
            verdict = if status.code() == Code::Ok { "ok" } else { "over_limit" },
            hits = descriptor.hits.charged(),
            limit = limited.map(|limited| limited.quota.limit),
            remaining = limited.map(|limited| limited.verdict.remaining),
            list = decision.listed.map(|listed| listed.list().name()),
            degraded = decision.degraded.map(|degraded| degraded.reason),
            suppressed,
            "descriptor decided"
        );
    }
}
