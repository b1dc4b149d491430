//! What came of requests.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicU64, Ordering},
};

use metrics::Counter;

use super::{
    page::{Kind, Page},
    striped::Striped,
};
use crate::store::StoreError;

/// What may come of a request: the two that are frequent, then the labels of errors, and of what had no answer.
const RESULTS: [&str; 16] = {
    let [a, b, c, d, e, f, g, h, i, j] = StoreError::LABELS;
    ["ok", "over_limit", "invalid", "no_rules", a, b, c, d, e, f, g, h, i, j, "panic", "cancelled"]
};

/// Where each is counted.
struct Counts {
    counters: Arc<Striped<{ RESULTS.len() }>>,
    published: [Arc<AtomicU64>; RESULTS.len()],
}

static COUNTS: LazyLock<Counts> = LazyLock::new(|| {
    let published: [Arc<AtomicU64>; RESULTS.len()] = Default::default();
    Counts { counters: Striped::new(published.clone().map(Counter::from_arc)), published }
});

/// Requests in which the store did not decide everything.
static DEGRADED: LazyLock<(Arc<Striped<1>>, Arc<AtomicU64>)> = LazyLock::new(|| {
    let published = Arc::<AtomicU64>::default();
    (Striped::new([Counter::from_arc(Arc::clone(&published))]), published)
});

/// Counts a request by what came of it: `ok`, `over_limit`, the label of the error, `panic`, or `cancelled` when its
/// caller reset it.
pub fn answered(result: &'static str) {
    let at = RESULTS.iter().position(|known| *known == result);
    debug_assert!(at.is_some(), "{result} is counted nowhere");
    if let Some(at) = at {
        COUNTS.counters.increment(at);
    }
}

/// Counts a request in which the store did not decide everything.
pub fn request_degraded() {
    DEGRADED.0.increment(0);
}

/// Requests by what came of them, as of the last time that counts were published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) all: u64,
    pub(super) over_limit: u64,
    /// Those that failed because the store did.
    pub(super) store_errors: u64,
    /// Those that failed for another reason.
    pub(super) other_errors: u64,
    pub(super) degraded: u64,
}

/// What came of requests so far.
pub(super) fn so_far() -> Answered {
    let mut so_far = Answered { degraded: DEGRADED.1.load(Ordering::Relaxed), ..Answered::default() };
    // What its caller gave up is no answer.
    let answers = RESULTS.into_iter().zip(&COUNTS.published).filter(|(result, _)| *result != "cancelled");
    for (result, count) in answers {
        let count = count.load(Ordering::Relaxed);
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

/// Adds all of them to a page.
pub(super) fn write(page: &mut Page) {
    let name = "tollgate_requests_total";
    page.begin(name, Kind::Counter, "Requests, by what came of them.");
    for (result, count) in RESULTS.into_iter().zip(&COUNTS.published) {
        page.sample(name, &[("result", result)], count.load(Ordering::Relaxed));
    }
}
