//! Metrics of requests.

use tollgate_limiter as limiter;
use tollgate_metrics::{Histogram, Metric, Observed, StripedFamily, Unit};
use tollgate_store::{self as store, StoreError};

use super::refusals::REFUSED;

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
pub(crate) static REQUEST_DURATION: Histogram<{ store::metrics::TIME_BUCKETS }> = Histogram::new(
    "tollgate_request_duration_seconds",
    "Time in seconds from the receipt of a gRPC request to its answer.",
    Unit::Time,
    store::metrics::TIME_BOUNDS,
);

/// Times of requests or of the store.
pub(crate) type Times = Observed<{ store::metrics::TIME_BUCKETS }>;

/// Counts a request by its result: `ok`, `over_limit`, the label of the error, `panic`, or `cancelled` when the client
/// reset it.
pub(crate) fn answered(result: &'static str) {
    let at = RESULTS.iter().position(|known| *known == result);
    debug_assert!(at.is_some(), "{result} is not a result that is counted");
    if let Some(at) = at {
        REQUESTS.increment(at);
    }
}

/// Counts calls that were refused because their worker is overloaded.
pub(crate) fn refused(count: u64) {
    REQUESTS.add(RESULTS.map(|result| if result == "overloaded" { count } else { 0 }));
}

/// Counts of requests by result, as last published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseCounts {
    pub(crate) all: u64,
    pub(crate) over_limit: u64,
    /// Failed because the store did.
    pub(crate) store_errors: u64,
    /// Failed for another reason.
    pub(crate) other_errors: u64,
    /// Not entirely decided by the store.
    pub(crate) degraded: u64,
}

impl ResponseCounts {
    /// Reads the counts since the start.
    pub(crate) fn read() -> Self {
        let mut counts = Self { degraded: limiter::metrics::degraded_requests(), ..Self::default() };
        // A request that its client cancelled has no response.
        let results = RESULTS.into_iter().zip(REQUESTS.totals()).filter(|(result, _)| *result != "cancelled");
        for (result, count) in results {
            counts.all = counts.all.saturating_add(count);
            let count_of_result = match result {
                "ok" => continue,
                "over_limit" => &mut counts.over_limit,
                "invalid" | "no_rules" | "panic" => &mut counts.other_errors,
                _ => &mut counts.store_errors,
            };
            *count_of_result = count_of_result.saturating_add(count);
        }
        counts
    }
}
