//! Metrics of requests.

use tollgate_limiter as limiter;
use tollgate_metrics::{Histogram, Metric, Observed, StripedFamily, Unit};
use tollgate_store::{self as store, StoreError};

/// Metrics of requests.
pub static METRICS: &[&dyn Metric] = &[&REQUESTS, &REQUEST_DURATION];

/// Results of a request: the two frequent ones, errors by their label, and requests without an answer.
const RESULTS: [&str; 16] = {
    let [a, b, c, d, e, f, g, h, i, j] = StoreError::LABELS;
    ["ok", "over_limit", "invalid", "no_rules", a, b, c, d, e, f, g, h, i, j, "panic", "cancelled"]
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

/// Requests by result, as of the last time that counts were published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) all: u64,
    pub(crate) over_limit: u64,
    /// Failed because the store did.
    pub(crate) store_errors: u64,
    /// Failed for another reason.
    pub(crate) other_errors: u64,
    /// The store did not decide all of it.
    pub(crate) degraded: u64,
}

impl Answered {
    /// The requests so far.
    pub(crate) fn so_far() -> Self {
        let mut so_far = Self { degraded: limiter::metrics::degraded_requests(), ..Self::default() };
        // A request that its client gave up has no answer.
        let answers = RESULTS.into_iter().zip(REQUESTS.totals()).filter(|(result, _)| *result != "cancelled");
        for (result, count) in answers {
            so_far.all = so_far.all.saturating_add(count);
            let one = match result {
                "ok" => continue,
                "over_limit" => &mut so_far.over_limit,
                "invalid" | "no_rules" | "panic" => &mut so_far.other_errors,
                _ => &mut so_far.store_errors,
            };
            *one = one.saturating_add(count);
        }
        so_far
    }
}
